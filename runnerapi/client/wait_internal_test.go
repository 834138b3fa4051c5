package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// The agent is asked to wait for less time than is left.
func TestWait_ShorterThanContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		assert.Equal(t, shortWait, within(t.Context(), shortWait))
		for left, want := range map[time.Duration]time.Duration{
			time.Hour: shortWait, 8 * time.Second: 6 * time.Second, -time.Second: time.Millisecond,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), left)
			assert.Equal(t, want, within(ctx, shortWait), "%s are left", left)
			cancel()
		}
	})
}
