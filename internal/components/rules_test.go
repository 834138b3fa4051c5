package components

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"
)

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
