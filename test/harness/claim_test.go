package harness

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestClaim_One(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	first, second := &claim{}, &claim{}
	require.NoError(t, first.take(t.Context(), "x", &out))
	require.NoError(t, first.take(t.Context(), "x", &out), "its second part starts")
	require.NoError(t, second.take(t.Context(), "y", &out))
	require.NoError(t, second.release())
	assert.Empty(t, out.String())

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, second.take(ctx, "x", &out), context.Canceled)
	assert.Equal(t, "waiting: another process has the system x\n", out.String())

	require.NoError(t, first.release())
	require.NoError(t, second.take(t.Context(), "x", &out))
	require.NoError(t, second.release())
}
