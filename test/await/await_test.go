package await_test

import (
	"fmt"
	"runtime"
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
