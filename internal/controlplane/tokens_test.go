package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func TestTokenRotate(t *testing.T) {
	p := start(t)
	old := p.token(approve, func(o *operators.TokenOptions) {
		o.Name, o.Uses, o.TTL, o.Labels = "fleet", 5, 10*time.Hour, map[string]string{"region": "eu"}
	})
	waiting := p.waiting("shop", old)
	p.clock.forward(9 * time.Hour)
	next, kept, err := p.admin.Tokens.Rotate(t.Context(), old.ID, 0)
	require.NoError(t, err)
	assert.NotEqual(t, old.ID, next.ID)
	assert.Equal(t, old.Fingerprint, next.Fingerprint)
	was, err := p.store.Token(t.Context(), old.ID)
	require.NoError(t, err)
	assert.Equal(t, next.ID, was.RotatedTo)
	assert.Equal(t, store.TokenRotated, was.State(p.clock.now()))
	assert.WithinDuration(t, p.clock.now().Add(10*time.Hour), kept.ExpiresAt, time.Minute, "its whole lifetime is before it")
	assert.Equal(t, []any{"fleet", 5, 0, map[string]string{"region": "eu"}, true}, []any{kept.Name, kept.MaxUses, kept.Uses, kept.Labels, kept.Approve})

	requireProblem(t, p.cluster("late").register(old), controlapi.CodeTokenRotated, "was rotated", next.ID)
	requireProblem(t, waiting.register(old), controlapi.CodeApprovalPending, "shop")
	requireProblem(t, p.cluster("bank").register(next), controlapi.CodeApprovalPending, "bank")

	_, _, err = p.admin.Tokens.Rotate(t.Context(), old.ID, 0)
	require.ErrorContains(t, err, next.ID, "it has one")
	_, _, err = p.admin.Tokens.Rotate(t.Context(), next.ID, -time.Second)
	require.ErrorContains(t, err, "--overlap")
	require.NoError(t, p.admin.Tokens.Revoke(t.Context(), next.ID))
	_, _, err = p.admin.Tokens.Rotate(t.Context(), next.ID, 0)
	require.ErrorContains(t, err, "is revoked")
	_, _, err = p.admin.Tokens.Rotate(t.Context(), "nothing", 0)
	require.ErrorContains(t, err, "token list")
}

func TestTokenRotate_Overlap(t *testing.T) {
	p := start(t)
	old := p.token(func(o *operators.TokenOptions) { o.Uses, o.TTL = 0, 0 })
	next, _, err := p.admin.Tokens.Rotate(t.Context(), old.ID, time.Hour)
	require.NoError(t, err)
	first := p.cluster("first")
	require.NoError(t, first.register(old))
	require.NoError(t, p.cluster("second").register(next))
	state, err := first.client.CheckToken(t.Context(), old, controlapi.TokenCheck{})
	require.NoError(t, err)
	assert.WithinDuration(t, p.clock.now().Add(time.Hour), state.ExpiresAt, time.Minute)
	p.clock.forward(61 * time.Minute)
	requireProblem(t, p.cluster("third").register(old), controlapi.CodeTokenRotated)
	require.NoError(t, p.cluster("fourth").register(next))
	require.NoError(t, first.beat(), "who registered with it stays")
}
