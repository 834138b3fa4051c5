package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// MetricsHistory returns an App's metrics over time.
func (c *Client) MetricsHistory(ctx context.Context, key runnerapi.Key, opts runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error) {
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
	var history runnerapi.MetricsHistory
	_, err := c.call(ctx, r, &history)
	return history, err
}

// ListAlerts returns the active alerts of a namespace. If it is empty, it returns those of the
// cluster and of all namespaces that the Runner may see.
func (c *Client) ListAlerts(ctx context.Context, namespace string) (runnerapi.AlertList, error) {
	r := newRequest("list-alerts")
	if namespace != "" {
		r = newRequest("list-namespace-alerts", namespace)
	}
	var list runnerapi.AlertList
	_, err := c.call(ctx, r, &list)
	return list, err
}

// Cost returns what namespaces or Apps have cost.
func (c *Client) Cost(ctx context.Context, opts runnerapi.CostOptions) (runnerapi.CostList, error) {
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
	var list runnerapi.CostList
	_, err := c.call(ctx, r, &list)
	return list, err
}
