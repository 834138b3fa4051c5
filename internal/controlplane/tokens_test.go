package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
)

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
