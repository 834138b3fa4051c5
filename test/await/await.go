// Package await lets a test wait for a condition: a channel, or a polled state. A wait that takes
// too long fails the test and names what the test waited for. Otherwise a missing event would end
// the whole package at its timeout, minutes later, with a dump of all goroutines.
package await

import (
	"testing"
	"time"
)

// limit is how long a wait may take. It is far beyond what anything here takes on a busy machine,
// because it only decides how soon a failing test ends.
const limit = 3 * time.Minute

// pollInterval is how often Until calls its condition.
const pollInterval = 10 * time.Millisecond

// Receive returns the next value from ch. It fails the test when ch is closed, or when no value
// arrives within three minutes.
func Receive[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case v, ok := <-ch:
		if !ok {
			t.Fatalf("waiting for %s: the channel was closed", what)
		}
		return v
	case <-timeout.C:
		t.Fatalf("waiting for %s: nothing within %s", what, limit)
		panic("not reached")
	}
}

// Closed waits until ch is closed and drops the values that arrive before.
func Closed[T any](t testing.TB, ch <-chan T, what string) {
	t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	for {
		select {
		case _, ok := <-ch:
			if !ok {
				return
			}
		case <-timeout.C:
			t.Fatalf("waiting for %s: not within %s", what, limit)
		}
	}
}

// Until waits until condition returns true. It calls condition every 10 ms.
func Until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("waiting until %s: not within %s", what, limit)
		}
		time.Sleep(pollInterval)
	}
}
