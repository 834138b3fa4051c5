package chart

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestChart_MetricsPolicy: the control plane's port is there when it is asked for, for
// whom it is said, or else for the pods of the namespace.
func TestChart_MetricsPolicy(t *testing.T) {
	const name, workload = "pipeops-controlplane", "StatefulSet pipeops-controlplane"
	off := render(t, controlChart, "broker.yaml")
	assert.NotContains(t, settings(off, name), "PIPEOPS_METRICS_LISTEN")
	assert.NotContains(t, ports(t, off, workload), "metrics")

	on := render(t, controlChart, "metrics.yaml")
	assert.Equal(t, ":9090", settings(on, name)["PIPEOPS_METRICS_LISTEN"])
	assert.Contains(t, ports(t, on, workload), "metrics")
	assert.NotContains(t, on, "PodMonitor "+name)
	assert.Equal(t, fromMonitoring, sources(t, on, name))

	own := render(t, controlChart, "broker.yaml", "--set", "metrics.enabled=true,metrics.podMonitor.enabled=true")
	assert.Equal(t, []any{map[string]any{"podSelector": map[string]any{}}}, sources(t, own, name))
	isMonitored(t, own, name)
}

var fromMonitoring = []any{map[string]any{"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": "monitoring"}}}}

func isMonitored(t *testing.T, all objects, name string) {
	t.Helper()
	endpoints := field[[]any](t, all["PodMonitor "+name], "spec", "podMetricsEndpoints")
	assert.Equal(t, []any{map[string]any{"port": "metrics", "path": "/metrics"}}, endpoints)
}

// TestChart_MetricsWaitForMonitoring: the port opens with the Secret that the component makes,
// for the namespace of that component, unless the values say otherwise.
func TestChart_MetricsWaitForMonitoring(t *testing.T) {
	const name = "pipeops-agent"
	for args, onDemand := range map[string]string{
		"metrics.enabled=auto": "true", "metrics.enabled=true": "false", "metrics.podMonitor.enabled=true": "false",
	} {
		all := render(t, agentChart, "single.yaml", "--set", args)
		env := environment(t, all["Deployment "+name])
		assert.Equal(t, ":9090", env["PIPEOPS_METRICS_ADDRESS"], args)
		assert.Equal(t, "/etc/pipeops/alerts/token", env["PIPEOPS_ALERTS_TOKEN_FILE"], args)
		assert.Equal(t, onDemand, env["PIPEOPS_METRICS_ON_DEMAND"], args)
		assert.Contains(t, ports(t, all, "Deployment "+name), "metrics", args)
		assert.Contains(t, all, "Service pipeops-agent-metrics", args)
		assert.Equal(t, fromMonitoring, sources(t, all, name), args)
		alerts := map[string]any{"name": "alerts", "secret": map[string]any{"secretName": "pipeops-alerts", "optional": true}}
		assert.Contains(t, podSpec(t, all["Deployment "+name])["volumes"], alerts, "the Secret may come later")
	}
	isMonitored(t, render(t, agentChart, "single.yaml", "--set", "metrics.podMonitor.enabled=true"), name)
	assert.NotContains(t, render(t, agentChart, "metrics.yaml"), "PodMonitor "+name)

	off := render(t, agentChart, "single.yaml", "--set", "metrics.enabled=false")
	assert.NotContains(t, environment(t, off["Deployment "+name]), "PIPEOPS_METRICS_ADDRESS")
	assert.NotContains(t, ports(t, off, "Deployment "+name), "metrics")
	assert.NotContains(t, off, "Service pipeops-agent-metrics")
}

// environment returns the variables of a workload's container that have their own value.
func environment(t *testing.T, o *unstructured.Unstructured) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, v := range container(t, o)["env"].([]any) {
		variable := v.(map[string]any)
		all[variable["name"].(string)] = variable["value"]
	}
	return all
}

// TestChart_Dashboards: the dashboards are for Grafana's sidecar, and are off by default.
func TestChart_Dashboards(t *testing.T) {
	const name = "ConfigMap pipeops-controlplane-dashboards"
	assert.NotContains(t, render(t, controlChart, "metrics.yaml"), name)
	on := render(t, controlChart, "metrics.yaml", "--set", "metrics.dashboards=true")[name]
	require.NotNil(t, on)
	assert.Equal(t, "1", on.GetLabels()["grafana_dashboard"])
	data, _, err := unstructured.NestedStringMap(on.Object, "data")
	require.NoError(t, err)
	for file, title := range map[string]string{"controlplane.json": "PipeOps: control plane", "gateway.json": "PipeOps: gateway"} {
		var board struct{ Title string }
		require.NoError(t, json.Unmarshal([]byte(data[file]), &board), file)
		assert.Equal(t, title, board.Title)
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
