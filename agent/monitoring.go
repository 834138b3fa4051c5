package agent

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/monitoring"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// monitoring returns what reads the cluster's components for Runners.
func (a *Agent) monitoring(engine *app.Engine) *monitoring.Reader {
	reader := monitoring.New(engine, func(ctx context.Context, component string) (*monitoring.Component, error) {
		return a.findComponent(ctx, engine, component)
	})
	engine.UseArchive(reader)
	return reader
}

// findComponent finds a component again for each call: it may have come or gone since the last one.
func (a *Agent) findComponent(ctx context.Context, engine *app.Engine, component string) (*monitoring.Component, error) {
	api, err := kubernetes.NewForConfig(kubeclient.Config(a.opts.Kubernetes))
	if err != nil {
		return nil, err
	}
	// Runners may make Services in a managed namespace.
	at, err := components.FindEndpoint(ctx, api, component, func(namespace string) (bool, error) {
		managed, err := engine.Manages(ctx, namespace)
		return !managed, err
	})
	switch {
	case apierrors.IsForbidden(err) && len(a.opts.Config.Namespaces) > 0:
		return nil, runnerapi.NotSupported("use an agent for the whole cluster", "this agent is limited to some namespaces, and does not see the component %s", component)
	case err != nil:
		return nil, kubeproblem.From(err, "looking for the component "+component)
	case at == nil:
		return nil, nil //nolint:nilnil // the cluster lacks it
	}
	return &monitoring.Component{Namespace: at.Namespace, URL: at.URL}, nil
}
