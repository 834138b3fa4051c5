package chart

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestMetricsAreForThoseWhoAreNamed: the port is there when it is asked for, for whom it is
// said, or else for the pods of the namespace.
func TestMetricsAreForThoseWhoAreNamed(t *testing.T) {
	for chart, at := range map[string]struct{ off, name, workload, setting string }{
		agentChart:   {"single.yaml", "pipeops-agent", "Deployment", "PIPEOPS_METRICS_ADDRESS"},
		controlChart: {"broker.yaml", "pipeops-controlplane", "StatefulSet", "PIPEOPS_METRICS_LISTEN"},
	} {
		off := render(t, chart, at.off)
		assert.NotContains(t, settings(off, at.name), at.setting)
		assert.NotContains(t, ports(t, off, at.workload+" "+at.name), "metrics")

		on := render(t, chart, "metrics.yaml")
		assert.Equal(t, ":9090", settings(on, at.name)[at.setting])
		assert.Contains(t, ports(t, on, at.workload+" "+at.name), "metrics")
		assert.NotContains(t, on, "PodMonitor "+at.name)
		from := []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "monitoring"}}}}
		assert.Equal(t, from, sources(t, on, at.name))

		own := render(t, chart, at.off, "--set", "metrics.enabled=true,metrics.podMonitor=true")
		assert.Equal(t, []any{map[string]any{"podSelector": map[string]any{}}}, sources(t, own, at.name))
		monitor := own["PodMonitor "+at.name]
		require.NotNil(t, monitor)
		endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "podMetricsEndpoints")
		require.NoError(t, err)
		assert.Equal(t, []any{map[string]any{"port": "metrics", "path": "/metrics"}}, endpoints)
	}
}

func settings(all objects, name string) map[string]string {
	data, _, _ := unstructured.NestedStringMap(all["ConfigMap "+name].Object, "data") // absent is empty
	return data
}

// ports are the names of a workload's ports.
func ports(t *testing.T, all objects, workload string) (names []any) {
	t.Helper()
	require.Contains(t, all, workload)
	containers, _, err := unstructured.NestedSlice(all[workload].Object, "spec", "template", "spec", "containers")
	require.NoError(t, err)
	for _, p := range containers[0].(map[string]any)["ports"].([]any) {
		names = append(names, p.(map[string]any)["name"])
	}
	return names
}

// sources are who reaches the port of metrics.
func sources(t *testing.T, all objects, name string) []any {
	t.Helper()
	rules, _, err := unstructured.NestedSlice(all["NetworkPolicy "+name].Object, "spec", "ingress")
	require.NoError(t, err)
	for _, r := range rules {
		rule := r.(map[string]any)
		if rule["ports"].([]any)[0].(map[string]any)["port"] == "metrics" {
			return rule["from"].([]any)
		}
	}
	t.Fatal("nobody reaches the port")
	return nil
}
