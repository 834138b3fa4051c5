package components

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/test/charts"
)

// A key that a chart does not have would change nothing.
func TestValues_KnownToCharts(t *testing.T) {
	source := Source{Directory: charts.Directory(t)}
	for _, c := range table {
		for _, chart := range c.Charts {
			own, err := values(chart.Name, true, namespaceSystem, nil)
			require.NoError(t, err)
			loaded, err := source.load(t.Context(), chart)
			require.NoError(t, err)
			known := loaded.Values
			for _, d := range loaded.Dependencies() {
				all := map[string]any{}
				merge(all, d.Values)
				if parent, ok := known[d.Name()].(map[string]any); ok {
					merge(all, parent)
				}
				known[d.Name()] = all
			}
			assertKnown(t, chart.Name, own, known)
		}
	}
}

// passedOn are values that charts pass on as they are.
var passedOn = []string{"loki.loki", "prometheus.alertmanager.config"}

// unlisted are values that a chart reads and does not list.
var unlisted = []string{"grafana.persistence.annotations"}

// assertKnown looks for keys that a chart lacks. Below an empty or absent map anything goes, and so
// do the configurations of Loki and Alertmanager, which the charts pass on.
func assertKnown(t *testing.T, at string, own, known map[string]any) {
	t.Helper()
	for key, value := range own {
		had, there := known[key]
		assert.True(t, there || slices.Contains(unlisted, at+"."+key), "%s.%s", at, key)
		inner, isMap := value.(map[string]any)
		if below, ok := had.(map[string]any); isMap && ok && len(below) > 0 && !slices.Contains(passedOn, at+"."+key) {
			assertKnown(t, at+"."+key, inner, below)
		}
	}
}

// TestAlertmanager_SharesToken expects a stable token: the agent's, if both have one.
func TestAlertmanager_SharesToken(t *testing.T) {
	i := &Installer{Client: fake.NewClientset()}
	tokens := func() (agent, alertmanager string) {
		t.Helper()
		require.NoError(t, i.ensureAlertsToken(t.Context(), "pipeops"))
		a, err := i.alertsToken(t.Context(), "pipeops")
		require.NoError(t, err)
		b, err := i.alertsToken(t.Context(), "monitoring")
		require.NoError(t, err)
		return string(a), string(b)
	}
	first, same := tokens()
	assert.Greater(t, len(first), 20)
	assert.Equal(t, first, same)
	again, same := tokens()
	assert.Equal(t, []string{first, first}, []string{again, same})

	owners := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pipeops-alerts"}, Data: map[string][]byte{"token": []byte("the owner's")}}
	_, err := i.Client.CoreV1().Secrets("pipeops").Update(t.Context(), owners, metav1.UpdateOptions{})
	require.NoError(t, err)
	agent, alertmanager := tokens()
	assert.Equal(t, []string{"the owner's", "the owner's"}, []string{agent, alertmanager})

	require.NoError(t, i.removeAlertsToken(t.Context(), "pipeops"))
	kept, err := i.alertsToken(t.Context(), "pipeops")
	require.NoError(t, err)
	assert.Equal(t, "the owner's", string(kept), "an owner's Secret stays")
	gone, err := i.alertsToken(t.Context(), "monitoring")
	require.NoError(t, err)
	assert.Empty(t, gone)
}

// TestRules_InPrometheus expects the values of the chart beside them, and no rules of the control
// plane.
func TestRules_InPrometheus(t *testing.T) {
	got, err := values("prometheus", true, "agents", nil)
	require.NoError(t, err)
	var names []any
	for _, g := range got["serverFiles"].(map[string]any)["alerting_rules.yml"].(map[string]any)["groups"].([]any) {
		names = append(names, g.(map[string]any)["name"])
	}
	assert.Equal(t, []any{"pipeops-agent", "pipeops-apps", "pipeops-cluster"}, names)
	assert.Contains(t, got, "alertmanager")
}

func TestRules_AgentInOtherNamespace(t *testing.T) {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "pipeops-agent"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "pipeops-agent", Namespace: "agents"}},
	}
	c := Cluster{AgentNamespace: namespaceSystem}
	require.NoError(t, c.lookAtAgent(t.Context(), fake.NewClientset()))
	assert.Equal(t, namespaceSystem, c.AgentNamespace)
	require.NoError(t, c.lookAtAgent(t.Context(), fake.NewClientset(binding)))
	assert.Equal(t, "agents", c.AgentNamespace)

	for namespace, other := range map[string]string{"agents": "pipeops", "pipeops": "agents"} {
		got, err := values("prometheus", true, namespace, nil)
		require.NoError(t, err)
		text, err := yaml.Marshal(got)
		require.NoError(t, err)
		for _, at := range []string{"http://pipeops-agent-metrics.%s.svc:9090/alerts", "{names: [%s]}"} {
			assert.True(t, strings.Contains(string(text), fmt.Sprintf(at, namespace)), at)
			assert.False(t, strings.Contains(string(text), fmt.Sprintf(at, other)), at)
		}
	}
}
