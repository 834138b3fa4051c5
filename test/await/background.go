package await

import (
	"context"
	"sync"
	"testing"
)

// Background runs a part of a test until stop is called, or the test ends. Then it waits for the
// part, which must not return an error.
func Background(t testing.TB, what string, part func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- part(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := Receive(t, done, "the end of "+what); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	})
	t.Cleanup(stop)
	return stop
}
