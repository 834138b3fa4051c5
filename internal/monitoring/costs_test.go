package monitoring_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// priced is an OpenCost with costs of several namespaces.
func priced(t *testing.T) *monitoringtest.Fake {
	t.Helper()
	return answering(t, monitoringtest.Allocation, func(q url.Values) any {
		if strings.Contains(q.Get("aggregate"), "label:") {
			return monitoringtest.Allocations("production/web", "production/__unallocated__", "payroll/web", "beta/web", "__idle__")
		}
		return monitoringtest.Allocations("production", "payroll", "beta", "__idle__", "__unmounted__")
	})
}

func TestCosts_ManagedNamespaces(t *testing.T) {
	f := priced(t)
	list, err := reading("opencost", f).Cost(t.Context(), runnerapi.CostOptions{Since: 24 * time.Hour})
	require.NoError(t, err)
	assert.Equal(t, 24*time.Hour, list.End.Sub(list.Start))
	require.Len(t, list.Items, 2)
	assert.Equal(t, runnerapi.Cost{Namespace: "production", CPU: 1, Memory: 2, Storage: 3, Network: 4.5, Other: 0.5, Total: 11}, list.Items[1])
	assert.Equal(t, "beta", list.Items[0].Namespace, "the name is the tie-break")
	assert.Equal(t, []string{"namespace"}, f.Asked()[0]["aggregate"])
	assert.Equal(t, []string{"true"}, f.Asked()[0]["accumulate"])
}

func TestCosts_ByApp(t *testing.T) {
	list, err := reading("opencost", priced(t)).Cost(t.Context(), runnerapi.CostOptions{Namespace: "production", Since: time.Hour, ByApp: true})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	assert.Empty(t, list.Items[0].App, "what is not an App's")
	assert.Equal(t, "web", list.Items[1].App)
}

// TestCosts_HidesForeign is of an OpenCost that names another namespace than it counts.
func TestCosts_HidesForeign(t *testing.T) {
	f := answering(t, monitoringtest.Allocation, func(url.Values) any {
		answer := monitoringtest.Allocations("payroll")
		sets := answer["data"].([]monitoringtest.Object)
		sets[0]["production"], sets[0]["beta"] = sets[0]["payroll"], nil
		return answer
	})
	list, err := reading("opencost", f).Cost(t.Context(), runnerapi.CostOptions{Since: time.Hour})
	require.NoError(t, err)
	assert.Empty(t, list.Items)
}

func TestCosts_None(t *testing.T) {
	_, err := reading("opencost", nil).Cost(t.Context(), runnerapi.CostOptions{Since: time.Hour})
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeNotSupported, p.Code)
	assert.Contains(t, p.Fix, "component install opencost")

	_, err = reading("opencost", priced(t)).Cost(t.Context(), runnerapi.CostOptions{Namespace: "payroll", Since: time.Hour})
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code)

	f := answering(t, monitoringtest.Allocation, func(url.Values) any {
		return monitoringtest.Failure{Status: 500, Body: `{"code":500,"message":"Error: Prometheus is away"}`}
	})
	_, err = reading("opencost", f).Cost(t.Context(), runnerapi.CostOptions{Since: time.Hour})
	p = problemOf(t, err)
	assert.Equal(t, problem.Unavailable, p.Code)
	assert.Contains(t, p.Detail, "Prometheus is away")
}

// alarmed is a Prometheus with alerts of several namespaces.
func alarmed(t *testing.T) *monitoringtest.Fake {
	t.Helper()
	return answering(t, monitoringtest.Alerts, func(url.Values) any {
		return monitoringtest.Firing(
			map[string]string{"alertname": "Info", "severity": "info", "namespace": "production"},
			map[string]string{"alertname": "Crashing", "severity": "critical", "namespace": "production", "app": "web"},
			map[string]string{"alertname": "Theirs", "severity": "critical", "namespace": "payroll"},
			map[string]string{"alertname": "Hidden", "namespace": "production", "exported_namespace": "payroll"},
			map[string]string{"alertname": "Beta", "severity": "warning", "namespace": "monitoring", "exported_namespace": "beta"},
			map[string]string{"alertname": "NodeDown", "severity": "warning", "namespace": "monitoring", "node": "n1\x1b[31m" + strings.Repeat("x", 5000)},
			map[string]string{"alertname": "Watchdog", "severity": "none"},
		)
	})
}

func namesOf(list []runnerapi.Alert) (names []string) {
	for _, a := range list {
		names = append(names, a.Name)
	}
	return names
}

// TestAlerts_ClusterAndManagedNamespaces expects all that a Runner may see if the policy hides
// nothing.
func TestAlerts_ClusterAndManagedNamespaces(t *testing.T) {
	list, err := reading("prometheus", alarmed(t)).Alerts(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, []string{"Crashing", "Beta", "NodeDown", "Info", "Watchdog"}, namesOf(list))
	crashing := list[0]
	assert.Equal(t, "web", crashing.App)
	assert.Equal(t, runnerapi.AlertFiring, crashing.State)
	assert.Equal(t, "Crashing happens", crashing.Summary)
	assert.False(t, crashing.ActiveAt.IsZero())
	assert.Equal(t, "beta", list[1].Namespace)
	assert.NotContains(t, list[2].Labels["node"], "\x1b")
	assert.Less(t, len(list[2].Labels["node"]), 1100)
}

func TestAlerts_OneNamespace(t *testing.T) {
	reader := reading("prometheus", alarmed(t))
	list, err := reader.Alerts(t.Context(), "production")
	require.NoError(t, err)
	assert.Equal(t, []string{"Crashing", "Info"}, namesOf(list))

	_, err = reader.Alerts(t.Context(), "payroll")
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code)
}

func TestAlerts_WithoutPrometheus(t *testing.T) {
	_, err := reading("loki", alarmed(t)).Alerts(t.Context(), "")
	assert.Equal(t, runnerapi.CodeNotSupported, problemOf(t, err).Code)
}
