package await_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// recorder is a test whose failure can be looked at.
type recorder struct {
	testing.TB
	failure string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatalf(format string, args ...any) {
	r.failure = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// failureOf runs f with a test of its own and returns how that test failed.
func failureOf(f func(t testing.TB)) string {
	r, done := &recorder{}, make(chan struct{})
	go func() {
		defer close(done)
		f(r)
	}()
	<-done
	return r.failure
}

func TestReceive(t *testing.T) {
	ch := make(chan int, 1)
	ch <- 7
	require.Equal(t, 7, await.Receive(t, ch, "a number"))
	close(ch)
	require.Equal(t, "waiting for a number: the channel was closed",
		failureOf(func(t testing.TB) { await.Receive(t, ch, "a number") }))
}

func TestClosed(t *testing.T) {
	ch := make(chan int, 2)
	ch <- 1
	ch <- 2
	close(ch)
	await.Closed(t, ch, "the end")
}

func TestUntil(t *testing.T) {
	var calls atomic.Int32
	await.Until(t, "three calls", func() bool { return calls.Add(1) == 3 })
	require.EqualValues(t, 3, calls.Load())
}

func TestUntil_NamesWhatIsMissing(t *testing.T) {
	for name, wait := range map[string]func(testing.TB){
		"Receive": func(t testing.TB) { await.Receive(t, make(chan int), "a number") },
		"Closed":  func(t testing.TB) { await.Closed(t, make(chan int), "a number") },
		"Until":   func(t testing.TB) { await.Until(t, "a number", func() bool { return false }) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				require.Contains(t, failureOf(wait), "a number")
				require.InDelta(t, 3*time.Minute, time.Since(start), float64(time.Second))
			})
		})
	}
}
