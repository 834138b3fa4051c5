package controlplane

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestARunnerLooksAnAgentUp by name or ID. An agent that it is not granted is answered as one
// that there is not.
func TestARunnerLooksAnAgentUp(t *testing.T) {
	p := start(t)
	shop := p.labelled("shop", map[string]string{"env": "prod"})
	lab := p.labelled("shop-lab", map[string]string{"env": "test"})
	p.labelled("bank", map[string]string{"env": "prod"})
	client := p.snapshotClient(p.issue("prod", "env=prod"))
	ask := func(nameOrID string) (announce.Agent, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		return client.Agent(ctx, nameOrID)
	}
	unknown := func(nameOrID string) *problem.Error {
		t.Helper()
		_, err := ask(nameOrID)
		known := &problem.Error{}
		require.ErrorAs(t, err, &known)
		require.Equal(t, problem.NotFound, known.Code)
		known.RequestID = ""
		return known
	}

	listed, err := client.Agents(t.Context())
	require.NoError(t, err)
	for _, want := range listed {
		for _, by := range []string{want.Name, want.ID} {
			got, err := ask(by)
			require.NoError(t, err)
			assert.Equal(t, want, got, "as the list has it")
		}
	}
	require.Len(t, listed, 2)

	assert.Equal(t, `did you mean "shop"? The most similar names are: shop, bank`, unknown("shpo").Fix)
	assert.Equal(t, "use one of: shop, bank", unknown("shop-lap").Fix)
	assert.Equal(t, unknown("shop-lap"), unknown("shop-lab"))
	assert.Equal(t, "list the agents with GET /v1/agents", unknown(strings.Repeat("x", 5000)).Fix)
	assert.Equal(t, unknown("0123456789abcdef").Detail, unknown(lab.id.AgentID).Detail)
	assert.NotContains(t, unknown(lab.id.AgentID).Fix, "lab")
	for _, odd := range []string{"", ".", "..", "../..", "shop/timeline", "shop?x", "%2e%2e"} {
		unknown(odd)
	}

	_, err = p.admin.RevokeAgent(t.Context(), "shop")
	require.NoError(t, err)
	unknown("shop")
	unknown(shop.id.AgentID)
	client = p.snapshotClient(p.issue("nothing", "env=none"))
	assert.Contains(t, unknown("bank").Fix, "is granted no agent")
}

// TestSuggestionsAreFew where there are many agents.
func TestSuggestionsAreFew(t *testing.T) {
	t.Parallel()
	var agents []announce.Agent
	for i := range 100 {
		agents = append(agents, announce.Agent{Name: fmt.Sprintf("shop-%d", i)})
	}
	names := similar("shop-7x", agents)
	assert.Len(t, names, maxSuggestions)
	assert.Equal(t, "shop-7", names[0])
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"shop", "shop", 0}, {"shpo", "shop", 2}, {"sho", "shop", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		assert.Equal(t, tc.n, distance(tc.a, tc.b), "%q %q", tc.a, tc.b)
		assert.Equal(t, tc.n, distance(tc.b, tc.a), "%q %q", tc.b, tc.a)
	}
}
