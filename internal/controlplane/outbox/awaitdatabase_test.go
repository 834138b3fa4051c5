package outbox

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestAwaitDatabase_Retries has the database away for an hour, far longer than the consumer retries
// before it dead-letters.
func TestAwaitDatabase_Retries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := time.Now().Add(time.Hour)
		taken := 0
		handle := patient(func(context.Context, announce.Event) error {
			if time.Now().Before(back) {
				return context.DeadlineExceeded
			}
			taken++
			return nil
		})
		require.NoError(t, handle(t.Context(), announce.Event{}))
		assert.Equal(t, 1, taken)
		assert.Less(t, time.Since(back), time.Minute)
	})
}

func TestAwaitDatabase_ReturnsOtherErrors(t *testing.T) {
	fault := errors.New("it makes no sense")
	err := patient(func(context.Context, announce.Event) error { return fault })(t.Context(), announce.Event{})
	require.ErrorIs(t, err, fault)
}

func TestAwaitDatabase_StopsOnCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	err := patient(func(context.Context, announce.Event) error { cancel(); return context.DeadlineExceeded })(ctx, announce.Event{})
	require.Error(t, err, "it is not settled, and comes again")
}
