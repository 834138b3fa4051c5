package limit

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// All places are taken. One is given back by a connection that waits for its client, and the
// others are late.
func TestTurns_EndWithRead(t *testing.T) {
	turns := NewTurns(time.Minute)
	near, far := net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	first := turns.Conn(near, nil)
	require.NoError(t, first.Take(t.Context()))
	for range cap(turns.places) - 1 {
		require.NoError(t, turns.Conn(near, nil).Take(t.Context()))
	}
	taken := make(chan error, 1)
	go func() { taken <- turns.Conn(near, nil).Take(t.Context()) }()
	select {
	case err := <-taken:
		t.Fatalf("there was one more place: %v", err)
	default:
	}
	go func() { _, _ = first.Read(make([]byte, 1)) }() // for as long as far is silent
	require.NoError(t, await.Receive(t, taken, "the turn that was given back"))
	require.NoError(t, first.Close())
	assert.Equal(t, cap(turns.places), len(turns.places), "one turn ended twice")
}

func TestTurns_RefuseLate(t *testing.T) {
	turns := NewTurns(time.Millisecond)
	for range cap(turns.places) {
		turns.places <- struct{}{}
	}
	near, far := net.Pipe()
	defer func() { _ = far.Close() }()
	c := turns.Conn(near, nil)
	if err := c.Take(t.Context()); !errors.Is(err, ErrLate) || turns.Late() != 1 {
		t.Errorf("%v, %d late", err, turns.Late())
	}
	_, err := far.Read(make([]byte, 1))
	assert.ErrorIs(t, err, io.EOF, "the client was told")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err = NewTurns(time.Hour).Conn(near, nil).Take(ctx)
	assert.True(t, err == nil || errors.Is(err, context.Canceled), err)
}

func TestTurns_Listener(t *testing.T) {
	turns := NewTurns(time.Minute)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	limited := Listen(l, Config{Turns: turns, Handshakes: 1})
	defer func() { _ = limited.Close() }()
	client, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	conn, err := limited.Accept()
	require.NoError(t, err)
	if err := TakeTurn(t.Context(), conn); err != nil || len(turns.places) != 1 {
		t.Errorf("%v, %d places are taken", err, len(turns.places))
	}
	if err := conn.Close(); err != nil || len(turns.places) != 0 {
		t.Errorf("%v, %d places are taken after the end", err, len(turns.places))
	}
	assert.NoError(t, TakeTurn(t.Context(), client), "a connection without turns")
}
