package policy_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRecord_RequiredForSession has sessions over the Runner API, and over the Kubernetes API,
// which the agent cannot record.
func TestRecord_RequiredForSession(t *testing.T) {
	p := load(t, `
rules:
  - name: watched
    runners: [dev]
    commands: [read, exec-app, port-forward-app, kubernetes-api]
    kubernetes: {user: dev}
    record: true
  - name: free
    commands: [exec-app]
`)
	i := intent("dev", "exec-app", "shop")
	assert.True(t, p.Records(i))
	assert.Contains(t, refusal(t, p.Decide(i)).Detail, "recorded")
	i.Recorded = true
	require.NoError(t, p.Decide(i))
	assert.False(t, p.Records(intent("ops", "exec-app", "shop")), "of another rule")
	assert.False(t, p.Records(intent("ops", "get-app", "shop")), "what is not allowed")
	require.NoError(t, p.Decide(intent("ops", "exec-app", "shop")))
	require.NoError(t, p.Decide(intent("dev", "port-forward-app", "shop")), "a port-forward is not a session")

	for _, resource := range []string{"pods/exec", "pods/attach", "nodes/proxy"} {
		_, err := p.KubernetesGrant(request("dev", "shop", "get", resource))
		if resource == "nodes/proxy" {
			require.Error(t, err)
			continue
		}
		assert.Contains(t, refusal(t, err).Detail, "cannot record "+resource)
	}
	for _, resource := range []string{"pods", "pods/log", "pods/portforward"} {
		_, err := p.KubernetesGrant(request("dev", "shop", "get", resource))
		require.NoError(t, err, resource)
	}
}
