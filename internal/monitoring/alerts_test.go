package monitoring_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// alarmed is a Prometheus with alerts of several namespaces.
func alarmed(t *testing.T) *monitoringtest.Fake {
	t.Helper()
	f := monitoringtest.Start(t)
	f.Answer(monitoringtest.Alerts, func(url.Values) any {
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
	return f
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
