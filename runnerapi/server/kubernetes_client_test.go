package server_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// The CLI asks before it starts kubectl.
func TestKubernetesAPI_ClientExplainsRefusal(t *testing.T) {
	agent, api, _, _ := kubernetes(t)
	api.created.Store(true)
	for rules, want := range map[string]map[string]string{
		reviewRules:               {"shop": "", "web": "", "pipeops": "agent's own namespace"},
		"rules: [{name: others}]": {"shop": "no rule of the customer's policy allows Runner tester to do kubernetes-api"},
	} {
		doc, err := policy.Parse([]byte(rules))
		require.NoError(t, err)
		p := policy.New("a test")
		p.Set(doc, nil)
		agent.Stop()
		agent.Policy = p
		agent.Start()
		client, err := client.New(agent.ClientConfig())
		require.NoError(t, err)
		for namespace, says := range want {
			refusal, err := client.Kubernetes().Refusal(t.Context(), namespace)
			require.NoError(t, err)
			if says == "" {
				assert.Empty(t, refusal, namespace)
			}
			assert.Contains(t, refusal, says, namespace)
		}
		client.Close()
	}
}
