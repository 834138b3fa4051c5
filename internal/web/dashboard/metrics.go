package dashboard

import (
	"context"
	"net/http"
	"strconv"

	"k8s.io/client-go/kubernetes"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/monitoring"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// storedApps are Apps as the reader of metrics knows them.
type storedApps struct{ *appcache.Store }

// Get implements monitoring.Apps.
func (s storedApps) Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	a, err := s.Store.Get(ctx, key)
	if err != nil {
		return runnerapi.App{}, err
	}
	return a.Wire(), nil
}

// metricsThrough returns what reads Prometheus by the same code as the agent does for Runners, but
// through the API server's proxy: the dashboard may be outside of the cluster's network.
func metricsThrough(
	client *http.Client, api kubernetes.Interface, apps *appcache.Store,
) func(context.Context, runnerapi.Key, runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error) {
	// Runners may make Services in a managed namespace.
	trusted := func(ctx context.Context) func(string) (bool, error) {
		return func(namespace string) (bool, error) {
			managed, err := apps.Manages(ctx, namespace)
			return !managed, err
		}
	}
	reader := monitoring.New(storedApps{apps}, func(ctx context.Context, component string) (*monitoring.Component, error) {
		at, err := components.FindEndpoint(ctx, api, component, trusted(ctx))
		if err != nil || at == nil {
			return nil, kubeproblem.From(err, "looking for the component "+component)
		}
		url := api.CoreV1().RESTClient().Get().Namespace(at.Namespace).Resource("services").SubResource("proxy").
			Name("http:" + at.Service + ":" + strconv.Itoa(int(at.Port))).URL()
		return &monitoring.Component{Namespace: at.Namespace, URL: url.String()}, nil
	})
	reader.Through(client)
	return reader.MetricsHistory
}
