package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const first, longest = 200 * time.Millisecond, 5 * time.Second

func TestWait_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		assert.True(t, retry.Wait(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(start))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, retry.Wait(ctx, time.Minute))
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}

func TestBackoff_Grows(t *testing.T) {
	waits, seen := retry.Backoff(first, longest), map[time.Duration]bool{}
	for n := range 20 {
		wait, ceiling := waits.NextBackOff(), min(first<<n, longest)
		assert.GreaterOrEqual(t, wait, ceiling/2)
		assert.LessOrEqual(t, wait, ceiling*3/2)
		seen[wait] = true
	}
	assert.Greater(t, len(seen), 10)
	waits.Reset()
	assert.LessOrEqual(t, waits.NextBackOff(), first*3/2)
}

func TestBackoff_AfterFailures(t *testing.T) {
	for failures := range 100 {
		wait, ceiling := retry.After(first, longest, failures), min(first<<min(max(failures-1, 0), 10), longest)
		assert.GreaterOrEqual(t, wait, ceiling/2, failures)
		assert.LessOrEqual(t, wait, ceiling, failures)
	}
	assert.LessOrEqual(t, retry.After(first, longest, 1<<40), longest)
}

func TestJitter_OnlyShortens(t *testing.T) {
	for range 1000 {
		got := retry.Jitter(time.Minute)
		assert.LessOrEqual(t, got, time.Minute)
		assert.GreaterOrEqual(t, got, 45*time.Second)
	}
}

func TestHeader(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, "-1": 0, "soon": 0, "99999999": time.Hour,
		"Fri, 02 Jan 2026 03:05:05 GMT": time.Minute, "Fri, 02 Jan 2026 03:00:00 GMT": 0,
	} {
		assert.Equal(t, want, retry.Header(text, now, time.Hour), text)
	}
}
