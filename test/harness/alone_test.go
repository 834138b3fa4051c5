package harness

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestAlone(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	var out bytes.Buffer
	release, err := Alone(t.Context(), "x", &out)
	require.NoError(t, err)
	other, err := Alone(t.Context(), "y", &out)
	require.NoError(t, err)
	other()
	assert.Empty(t, out.String(), "nobody else was there")

	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Alone(cancelled, "x", &out)
	require.ErrorIs(t, err, context.Canceled)
	assert.Contains(t, out.String(), "waiting: another process runs tests on the system x\n")

	release()
	again, err := Alone(t.Context(), "x", &out)
	require.NoError(t, err)
	again()
}
