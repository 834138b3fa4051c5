package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// meanwhilePatience bounds what runs while a test goes on. Its commands have shorter deadlines of
// their own.
const meanwhilePatience = 12 * time.Minute

// meanwhile runs something while the test goes on. The function that it returns waits for its end
// and fails the test when it failed. Nothing outlives the test.
func meanwhile(t *testing.T, what string, do func(context.Context) error) (end func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), meanwhilePatience)
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = do(ctx)
	}()
	await := func() bool {
		timeout := time.NewTimer(meanwhilePatience + closeTimeout)
		defer timeout.Stop()
		select {
		case <-done:
			return true
		case <-timeout.C:
			return false
		}
	}
	t.Cleanup(func() {
		cancel()
		require.True(t, await(), "%s has not ended although its context has", what)
	})
	return func() {
		t.Helper()
		require.True(t, await(), "%s has not ended although its context has", what)
		require.NoError(t, err, what)
	}
}
