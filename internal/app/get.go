package app

import (
	"cmp"
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/admission"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Get reads one App from the cache, which is never older than the last write
// that went through this Engine.
func (e *Engine) Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	if err := e.admit(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	a, err := e.get(ctx, key)
	if err != nil {
		return runnerapi.App{}, err
	}
	return a.Wire(), nil
}

func (e *Engine) get(ctx context.Context, key runnerapi.Key) (*App, error) {
	a := &App{}
	err := e.cached.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, a)
	if apierrors.IsNotFound(err) {
		return nil, problem.Errorf(problem.NotFound, "check the name and the namespace, or deploy it first", "there is no App %s", key)
	}
	if err != nil {
		return nil, kubeproblem.From(err, "reading App "+key.String())
	}
	return a, nil
}

// List reads the Apps of a namespace, or of all managed ones.
func (e *Engine) List(ctx context.Context, namespace string) ([]runnerapi.App, error) {
	managedOnes := map[string]bool{namespace: true}
	if namespace != "" {
		if err := e.admit(ctx, namespace); err != nil {
			return nil, err
		}
	} else {
		var err error
		if managedOnes, err = e.managedNamespaces(ctx); err != nil {
			return nil, err
		}
	}
	var list List
	if err := e.cached.List(ctx, &list, client.InNamespace(namespace), untouched); err != nil {
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

// admit refuses a command that comes too early or reaches too far.
func (e *Engine) admit(ctx context.Context, namespace string) error {
	if !e.Ready() {
		return notReady()
	}
	_, err := admission.Namespace(ctx, e.scope(), namespace, e.readNamespace)
	return err
}

func (e *Engine) manages(ctx context.Context, namespace string) (bool, error) {
	_, ok, err := admission.Manages(ctx, e.scope(), namespace, e.readNamespace)
	return ok, err
}

// readNamespace reads a namespace from the cache. One that the cache does not know may have been
// handed over a moment ago.
func (e *Engine) readNamespace(ctx context.Context, namespace string) (*metav1.PartialObjectMetadata, error) {
	ns := namespaceMeta()
	err := e.cached.Get(ctx, client.ObjectKey{Name: namespace}, ns)
	if apierrors.IsNotFound(err) {
		err = e.live.Get(ctx, client.ObjectKey{Name: namespace}, ns)
	}
	return ns, err
}

func (e *Engine) managedNamespaces(ctx context.Context) (map[string]bool, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(namespaceMeta().GroupVersionKind().GroupVersion().WithKind("NamespaceList"))
	if err := e.cached.List(ctx, list); err != nil {
		return nil, kubeproblem.From(err, "listing namespaces")
	}
	names := map[string]bool{}
	for _, ns := range list.Items {
		names[ns.Name] = e.scope().Covers(ns.Name)
	}
	return names, nil
}
