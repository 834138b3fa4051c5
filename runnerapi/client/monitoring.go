package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Monitoring are the calls about what Apps use and cost, and what is wrong in the cluster.
type Monitoring struct{ *core }

// Metrics returns what an App uses and what it requests.
func (m Monitoring) Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error) {
	return fetch[runnerapi.AppMetrics](ctx, m.core, objectRequest("get-app-metrics", key))
}

// MetricsHistory returns an App's metrics over time.
func (m Monitoring) MetricsHistory(ctx context.Context, key runnerapi.Key, opts runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error) {
	r := objectRequest("get-app-metrics-history", key)
	r.query = map[string]string{}
	if opts.Since > 0 {
		r.query["since"] = opts.Since.String()
	}
	if opts.Step > 0 {
		r.query["step"] = opts.Step.String()
	}
	if opts.ByPod {
		r.query["by"] = "pod"
	}
	return fetch[runnerapi.MetricsHistory](ctx, m.core, r)
}

// Alerts returns the active alerts of a namespace. If it is empty, it returns those of the
// cluster and of all namespaces that the Runner may see.
func (m Monitoring) Alerts(ctx context.Context, namespace string) (runnerapi.AlertList, error) {
	r := newRequest("list-alerts")
	if namespace != "" {
		r = newRequest("list-namespace-alerts", namespace)
	}
	return fetch[runnerapi.AlertList](ctx, m.core, r)
}

// Cost returns what namespaces or Apps have cost.
func (m Monitoring) Cost(ctx context.Context, opts runnerapi.CostOptions) (runnerapi.CostList, error) {
	r := newRequest("get-cost")
	if opts.Namespace != "" {
		r = newRequest("get-namespace-cost", opts.Namespace)
	}
	r.query = map[string]string{}
	if opts.Since > 0 {
		r.query["since"] = opts.Since.String()
	}
	if opts.ByApp {
		r.query["by"] = "app"
	}
	return fetch[runnerapi.CostList](ctx, m.core, r)
}
