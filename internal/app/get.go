package app

import (
	"cmp"
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Get reads one App from the cache, which is never older than the last write
// that went through this Engine.
func (e *Engine) Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	if err := e.store.Admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	a, err := e.store.Get(ctx, key)
	if err != nil {
		return runnerapi.App{}, err
	}
	return a.Wire(), nil
}

// GetLive reads one App from the API server. The cache may be behind what another replica wrote.
func (e *Engine) GetLive(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	if err := e.store.Admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	a, err := e.store.GetLive(ctx, key)
	if err != nil {
		return runnerapi.App{}, appcache.ReadProblem(err, key)
	}
	return a.Wire(), nil
}

// List reads the Apps of a namespace, or of all managed ones.
func (e *Engine) List(ctx context.Context, namespace string) ([]runnerapi.App, error) {
	managedOnes := map[string]bool{namespace: true}
	if namespace != "" {
		if err := e.store.Admit(ctx, namespace); err != nil {
			return nil, err
		}
	} else {
		var err error
		if managedOnes, err = e.store.ManagedNamespaces(ctx); err != nil {
			return nil, err
		}
	}
	var list v1alpha1.List
	if err := e.store.Cached.List(ctx, &list, client.InNamespace(namespace), appcache.Untouched); err != nil {
		return nil, kubeproblem.From(err, "listing Apps")
	}
	apps := make([]runnerapi.App, 0, len(list.Items))
	for i := range list.Items {
		if managedOnes[list.Items[i].Namespace] {
			apps = append(apps, list.Items[i].Wire()) // a copy
		}
	}
	slices.SortFunc(apps, func(a, b runnerapi.App) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return apps, nil
}
