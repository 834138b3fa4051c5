package wake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

func TestWake_Coalesces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, looks := wake.New(), 0
		ctx, cancel := context.WithCancel(t.Context())
		s.Raise()
		s.Raise()
		go func() {
			for s.Wait(ctx) {
				looks++
			}
		}()
		synctest.Wait()
		assert.Equal(t, 1, looks)
		s.Raise()
		synctest.Wait()
		assert.Equal(t, 2, looks)
		cancel()
		synctest.Wait()
		assert.False(t, s.Wait(ctx))
	})
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, start := wake.New(), time.Now()
		assert.True(t, s.WaitFor(t.Context(), time.Minute))
		assert.Equal(t, time.Minute, time.Since(start))
		s.Raise()
		assert.True(t, s.WaitFor(t.Context(), time.Minute))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.False(t, s.WaitFor(ctx, time.Minute))
		assert.Equal(t, time.Minute+time.Second, time.Since(start))
	})
}
