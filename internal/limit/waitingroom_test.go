package limit

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// waiting is how many wait for us.
func (r *Room) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.held
}

// full are turns that are all taken.
func full(patience time.Duration) *Turns {
	turns := NewTurns(patience)
	for range cap(turns.places) {
		turns.places <- struct{}{}
	}
	return turns
}

// pipe is a connection that the test closes at its end.
func pipe(t *testing.T) (near, far net.Conn) {
	t.Helper()
	near, far = net.Pipe()
	t.Cleanup(func() { _, _ = near.Close(), far.Close() })
	return near, far
}

// queued has a connection wait in a room for its turn.
func queued(t *testing.T, room *Room, turns *Turns) (far net.Conn, served <-chan error) {
	t.Helper()
	near, far := pipe(t)
	before, c, done := room.waiting(), turns.Conn(near, room.Take(near)), make(chan error, 1)
	go func() { done <- c.Take(t.Context()) }()
	await.Until(t, "the connection waits for its turn", func() bool { return room.waiting() > before })
	return far, done
}

// The storm that fed on itself: those whose turn was next had waited longest, and made room for
// those who came after them.
func TestRoom_KeepsWaitingForTurn(t *testing.T) {
	room, turns := NewRoom(2), full(time.Minute)
	_, first := queued(t, room, turns)
	_, second := queued(t, room, turns)
	var silent []net.Conn
	for range 3 {
		near, far := pipe(t)
		room.Take(near)
		silent = append(silent, far)
	}
	_, err := silent[0].Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the one that is silent longest makes room")
	assert.Equal(t, 4, room.Len())
	for range 2 {
		await.Receive(t, turns.places, "a place that is taken")
	}
	require.NoError(t, await.Receive(t, first, "the turn of the first"))
	require.NoError(t, await.Receive(t, second, "the turn of the second"))
	assert.Zero(t, room.waiting())
}

// New connections wait in the system's queue.
func TestRoom_NoAcceptWhileFull(t *testing.T) {
	room, turns := NewRoom(1), full(time.Minute)
	_, served := queued(t, room, turns)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.False(t, room.Await(ctx), "it is no place, only the end of waiting for it")
	open := make(chan bool, 1)
	go func() { open <- room.Await(t.Context()) }()
	await.Receive(t, turns.places, "a place that is taken")
	require.NoError(t, await.Receive(t, served, "the turn"))
	assert.True(t, await.Receive(t, open, "room"))
}

func TestRoom_ClosedListener(t *testing.T) {
	turns := full(time.Minute)
	l := open(t, Config{Handshakes: 1, Turns: turns})
	dial(t, l, "127.0.0.1")
	c := accept(t, l)
	go func() { _ = TakeTurn(t.Context(), c) }()
	await.Until(t, "the connection waits for its turn", func() bool { return l.room.waiting() == 1 })
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	require.NoError(t, l.Close())
	require.ErrorIs(t, await.Receive(t, accepted, "the end of Accept"), net.ErrClosed)
}

// A connection is closed while it waits for its turn.
func TestTurns_SkipClosed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("not known here: see wrapconn.Ended")
	}
	turns := full(time.Minute)
	l := open(t, Config{Handshakes: 2, Turns: turns})
	gone := dial(t, l, "127.0.0.1")
	first := accept(t, l)
	stays := dial(t, l, "127.0.0.1")
	second := accept(t, l)
	require.NoError(t, gone.Close())
	await.Until(t, "the connection has ended", func() bool { return wrapconn.Ended(first.(*conn).NetConn().(*TurnConn).NetConn()) })
	_, err := stays.Write([]byte("hello"))
	require.NoError(t, err)
	await.Receive(t, turns.places, "a place that is taken")
	require.ErrorIs(t, TakeTurn(t.Context(), first), ErrGone)
	require.NoError(t, TakeTurn(t.Context(), second), "the turn of the one that has gone is the next one's")
	assert.EqualValues(t, 1, turns.Gone())
	said := make([]byte, 5)
	_, err = io.ReadFull(second, said)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(said), "nothing was taken from it by looking")
}

// allButOne are turns of which one more can be begun.
func allButOne() *Turns {
	turns := NewTurns(time.Minute)
	turns.answer = time.Hour
	for range cap(turns.begun) - 1 {
		turns.begun <- struct{}{}
	}
	return turns
}

// One waits until another has ended.
func TestTurns_FinishBegun(t *testing.T) {
	for name, end := range map[string]func(*Place, *TurnConn){
		"settled": func(place *Place, _ *TurnConn) { place.Leave() },
		"closed":  func(_ *Place, c *TurnConn) { _ = c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			room, turns := NewRoom(2), allButOne()
			near, _ := pipe(t)
			place := room.Take(near)
			first := turns.Conn(near, place)
			require.NoError(t, first.Take(t.Context()))
			first.End() // it is the client's turn
			_, served := queued(t, room, turns)
			end(place, first)
			require.NoError(t, await.Receive(t, served, "the turn"))
			assert.Len(t, turns.begun, cap(turns.begun), "one has ended, and one has begun")
		})
	}
}

// One begins and never ends.
func TestTurns_LateClient(t *testing.T) {
	turns := allButOne()
	turns.answer = time.Millisecond
	near, _ := pipe(t)
	for range 3 {
		c := turns.Conn(near, nil)
		require.NoError(t, c.Take(t.Context()))
		c.End()
	}
}

// All places are taken. One is given back by a connection that waits for its client, and the
// others are late.
func TestTurns_EndWithRead(t *testing.T) {
	turns := NewTurns(time.Minute)
	near, _ := pipe(t)
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
	near, far := pipe(t)
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
