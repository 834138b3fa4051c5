package observe

import (
	"context"
	"fmt"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/monitoring"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// anyApp has every App, in a namespace that is managed.
type anyApp struct{}

func (anyApp) Get(_ context.Context, key runnerapi.Key) (runnerapi.App, error) {
	return runnerapi.App{Namespace: key.Namespace, Name: key.Name}, nil
}

func (anyApp) Manages(context.Context, string) (bool, error) { return true, nil }

// queries returns what the agent asks Prometheus about the metrics of App production/web.
func queries(t *testing.T, byPod bool) (all []string) {
	t.Helper()
	f := monitoringtest.Start(t)
	f.Answer(monitoringtest.QueryRange, func(url.Values) any { return monitoringtest.Matrix() })
	reader := monitoring.New(anyApp{}, func(context.Context, string) (*monitoring.Component, error) {
		return &monitoring.Component{URL: f.URL}, nil
	})
	_, err := reader.MetricsHistory(t.Context(), runnerapi.Key{Namespace: "production", Name: "web"},
		runnerapi.HistoryOptions{Since: time.Hour, Step: 10 * time.Minute, ByPod: byPod})
	require.NoError(t, err)
	for _, q := range f.Asked() {
		all = append(all, q.Get("query"))
	}
	return all
}

// scraped are series as Prometheus' chart has them: of two pods of the App web, of which one is
// gone, of an App web-db, and of an App web in another namespace.
func scraped() (all []map[string]string) {
	add := func(values, metric, labels string) {
		all = append(all, map[string]string{"series": metric + "{" + labels + "}", "values": values})
	}
	for _, pod := range []struct{ namespace, name, container string }{
		{"production", "web-7d4b9c6f5-x2x4q", "web"}, {"production", "web-7d4b9c6f5-gone2", "web"},
		{"production", "web-db-0", "web-db"}, {"payroll", "web-7d4b9c6f5-zzzzz", "web"},
	} {
		of := fmt.Sprintf("namespace=%q,pod=%q", pod.namespace, pod.name)
		in := fmt.Sprintf("%s,container=%q", of, pod.container)
		add("0+60x60", "container_cpu_usage_seconds_total", in)
		add("0+60x60", "container_cpu_usage_seconds_total", of) // of the whole pod, as cAdvisor has it
		add("100x60", "container_memory_working_set_bytes", in)
		add("3x60", "kube_pod_container_status_restarts_total", in)
		add("0+60x60", "container_network_receive_bytes_total", of+`,interface="eth0"`)
		add("0+60x60", "container_network_transmit_bytes_total", of+`,interface="eth0"`)
		add("0+60x60", "http_requests_total", of+`,code="200"`)
	}
	return all
}

// TestHistory_QueriesOfPods has Prometheus' own engine evaluate them.
func TestHistory_QueriesOfPods(t *testing.T) {
	tool := promtool(t)
	each := []float64{1, 100, 3, 1, 1, 1}
	type sample struct {
		Labels string  `json:"labels"`
		Value  float64 `json:"value"`
	}
	type evaluation struct {
		Expr    string   `json:"expr"`
		Time    string   `json:"eval_time"`
		Samples []sample `json:"exp_samples"`
	}
	var all []evaluation
	for i, query := range queries(t, false) {
		all = append(all, evaluation{query, "50m", []sample{{`{namespace="production"}`, 2 * each[i]}}})
	}
	for i, query := range queries(t, true) {
		all = append(all, evaluation{query, "50m", []sample{
			{`{namespace="production",pod="web-7d4b9c6f5-gone2"}`, each[i]}, {`{namespace="production",pod="web-7d4b9c6f5-x2x4q"}`, each[i]},
		}})
	}
	require.Len(t, all, 2*len(each))
	approves(t, tool, map[string]any{
		"evaluation_interval": "1m",
		"tests":               []any{map[string]any{"interval": "1m", "input_series": scraped(), "promql_expr_test": all}},
	}, "test", "rules")
}
