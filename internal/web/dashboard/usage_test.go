package dashboard

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestUsage_ClosedPage: other pages get no error, and a result is kept for a moment.
func TestUsage_ClosedPage(t *testing.T) {
	asked, now := 0, time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	h := newHistories(func(ctx context.Context, _ runnerapi.Key, _ runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error) {
		asked++
		return runnerapi.MetricsHistory{}, ctx.Err()
	}, func() time.Time { return now })
	closed, closePage := context.WithCancel(t.Context())
	closePage()
	_, err := h.read(closed, runnerapi.Key{}, spans[0])
	require.ErrorIs(t, err, context.Canceled)
	_, err = h.read(t.Context(), runnerapi.Key{}, spans[0])
	require.NoError(t, err)
	_, err = h.read(t.Context(), runnerapi.Key{}, spans[0])
	require.NoError(t, err)
	assert.Equal(t, 2, asked, "the second page has what the first one read")
	now = now.Add(usageKept)
	_, err = h.read(t.Context(), runnerapi.Key{}, spans[0])
	require.NoError(t, err)
	assert.Equal(t, 3, asked)
}
