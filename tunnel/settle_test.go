package tunnel

import (
	"context"
	"crypto/tls"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// settles begins to wait for what the tunnel's attempt comes to. The channel is closed when the
// wait is over.
func settles(t *testing.T, tr *tracker) <-chan struct{} {
	settled := make(chan struct{})
	go func() {
		defer close(settled)
		(&Tunnel{status: tr}).Settle(t.Context())
	}()
	synctest.Wait()
	return settled
}

func isOver(settled <-chan struct{}) bool {
	synctest.Wait()
	select {
	case <-settled:
		return true
	default:
		return false
	}
}

// Any result of the attempt ends the wait.
func TestSettle_WaitsForAttempt(t *testing.T) {
	for _, outcome := range []Phase{Connected, Waiting, Refused, Stopped} {
		synctest.Test(t, func(t *testing.T) {
			tr := newTracker()
			tr.set(Connecting, nil)
			first := settles(t, tr)
			assert.False(t, isOver(first), "the attempt is in progress")
			tr.set(outcome, nil)
			assert.True(t, isOver(first), "the first attempt is %s", outcome)
			assert.True(t, isOver(settles(t, tr)), "there is nothing more to wait for")

			tr.set(Connected, nil)
			tr.set(Waiting, nil) // the connection is lost
			next := settles(t, tr)
			assert.False(t, isOver(next), "there is to be another attempt")
			tr.set(Connecting, nil)
			assert.False(t, isOver(next), "it is in progress")
			tr.set(outcome, nil)
			assert.True(t, isOver(next), "the next attempt is %s", outcome)
		})
	}
}

// Attempts never end. The first waiters wait for their patience, and later ones do not wait for
// the same attempt.
func TestSettle_Timeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTracker()
		tr.set(Connecting, nil)
		for _, patience := range []time.Duration{firstPatience, nextPatience} {
			begun := time.Now()
			first := settles(t, tr)
			time.Sleep(patience / 2)
			second := settles(t, tr)
			<-first
			<-second
			assert.Equal(t, patience, time.Since(begun))
			assert.True(t, isOver(settles(t, tr)))
			tr.set(Connected, nil)
			tr.set(Connecting, nil)
		}
		given, giveUp := context.WithCancel(t.Context())
		giveUp()
		(&Tunnel{status: tr}).Settle(given) // it returns
	})
}

// It settles when a tunnel is up, when all have failed, or after its patience.
func TestSet_Settle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tunnels := setOf(t, 2)
		waits := func() <-chan struct{} {
			settled := make(chan struct{})
			go func() {
				defer close(settled)
				s.Settle(t.Context())
			}()
			synctest.Wait()
			return settled
		}
		all := func(phase Phase) {
			for _, tunnel := range tunnels {
				tunnel.status.set(phase, nil)
			}
		}
		members := s.members
		s.members = nil
		s.changed() // as it is told of servers before it has begun
		first := waits()
		assert.False(t, isOver(first), "nothing was tried")
		s.members = members
		all(Connecting)
		tunnels[0].status.set(Waiting, nil)
		assert.False(t, isOver(first), "one is in progress")
		tunnels[1].status.set(Connected, nil)
		assert.True(t, isOver(first), "one is up")

		all(Waiting)
		next := waits()
		assert.False(t, isOver(next), "there is to be another attempt")
		all(Connecting)
		all(Waiting)
		assert.True(t, isOver(next), "all have failed")

		all(Connected)
		all(Connecting)
		begun := time.Now()
		<-waits()
		assert.Equal(t, nextPatience, time.Since(begun), "attempts that take too long")
	})
}

// setOf is a Set with tunnels that nothing runs.
func setOf(t *testing.T, n int) (s *Set, tunnels []*Tunnel) {
	t.Helper()
	source := func(context.Context) (*tls.Config, error) { return &tls.Config{MinVersion: tls.VersionTLS13}, nil }
	cfg := Config{ServerAddress: "example.test:7000", AgentID: "a1", TLS: source}
	s, err := NewSet(SetConfig{Config: cfg})
	require.NoError(t, err)
	for range n {
		tunnel, err := New(cfg)
		require.NoError(t, err)
		tunnel.status.notify = s.changed
		s.members = append(s.members, &member{Tunnel: tunnel})
		tunnels = append(tunnels, tunnel)
	}
	return s, tunnels
}
