package controlplane

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestAgentLookup_ByNameOrID: an agent that the Runner is not granted gets the answer of an unknown
// one.
func TestAgentLookup_ByNameOrID(t *testing.T) {
	p := start(t)
	shop := p.labelled("shop", map[string]string{"env": "prod"})
	lab := p.labelled("shop-lab", map[string]string{"env": "test"})
	p.labelled("bank", map[string]string{"env": "prod"})
	client := p.snapshotClient(p.issue("prod", "env=prod"))
	ask := func(nameOrID string) (announce.Agent, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
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

	_, err = p.admin.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	unknown("shop")
	unknown(shop.id.AgentID)
	client = p.snapshotClient(p.issue("nothing", "env=none"))
	assert.Contains(t, unknown("bank").Fix, "is granted no agent")
}
