package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// TestFindAgents matches labels exactly, and words in any case.
func TestFindAgents(t *testing.T) { postgres.OnEach(t, testAgentsAreFound) }

func testAgentsAreFound(t *testing.T, on postgres.Engine) {
	t.Parallel()
	s, ctx := fresh(t, on), t.Context()
	for id, labels := range map[string]map[string]string{
		"a1": {"env": "prod", "team": "a_b"}, "a2": {"env": "Prod", "team": "axb"}, "a3": {"Env": "prod"}, "a4": nil,
	} {
		a := agent(id, "shop-"+id)
		a.Labels = labels
		require.NoError(t, s.InsertAgent(ctx, a))
	}
	gone := agent("a4", "shop-a4")
	gone.RevokedAt = noon
	require.NoError(t, s.UpdateAgent(ctx, gone))

	for name, tc := range map[string]struct {
		find store.AgentQuery
		want []string
	}{
		"a label":     {store.AgentQuery{Labels: map[string]string{"env": "prod"}}, []string{"a1"}},
		"another":     {store.AgentQuery{Labels: map[string]string{"env": "Prod"}}, []string{"a2"}},
		"two labels":  {store.AgentQuery{Labels: map[string]string{"env": "prod", "team": "a_b"}}, []string{"a1"}},
		"no pattern":  {store.AgentQuery{Labels: map[string]string{"team": "a%b"}}, nil},
		"a word":      {store.AgentQuery{Search: "PROD"}, []string{"a1", "a2", "a3"}},
		"a wildcard":  {store.AgentQuery{Search: "a_b"}, []string{"a1"}},
		"a state":     {store.AgentQuery{State: announce.StateRevoked}, []string{"a4"}},
		"all of them": {store.AgentQuery{Labels: map[string]string{"env": "prod"}, Search: "shop-a1", State: announce.StatePending}, []string{"a1"}},
	} {
		found, total, err := s.FindAgents(ctx, tc.find)
		require.NoError(t, err, name)
		var ids []string
		for _, a := range found {
			ids = append(ids, a.ID)
		}
		assert.Equal(t, tc.want, ids, name)
		assert.Equal(t, len(tc.want), total, name)
	}
}
