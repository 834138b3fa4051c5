package limit

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// Turns computes a few TLS handshakes at a time, in the order of their requests. Thousands side by
// side would each take as long as all together, which is longer than any client waits: then all
// were computed in vain. A turn lasts as long as the computation. It ends when the server waits for
// the client's answer, so that slow or distant clients hold up no others.
//
// Turns also limits the handshakes that have begun and not ended. Otherwise all would begin before
// any is finished, and the clients' answers would arrive all together, too late for most. A
// handshake that takes longer than answerTime no longer counts.
type Turns struct {
	begun    chan struct{}
	places   chan struct{}
	patience time.Duration
	answer   time.Duration
	late     atomic.Uint64
	gone     atomic.Uint64
}

const (
	// begunPerProcessor handshakes end within a quarter of a second with near clients, and at 250
	// per second and processor with clients at the other end of the world.
	begunPerProcessor = 64
	// answerTime covers a handshake, a login and an answer over the longest usable distance.
	answerTime = time.Second
)

var (
	// ErrLate ends a handshake that did not get its turn in time.
	ErrLate = errors.New("too many handshakes at a time")
	// ErrGone ends a handshake whose client did not wait for its turn.
	ErrGone = errors.New("the client has given up")
)

// NewTurns returns turns for as many handshakes as there are processors to compute them, and as
// many more that are ready. A connection that has waited for longer than patience, when its client
// is about to give up, is refused without a turn.
func NewTurns(patience time.Duration) *Turns {
	n := runtime.GOMAXPROCS(0)
	return &Turns{begun: make(chan struct{}, begunPerProcessor*n), places: make(chan struct{}, 2*n), patience: patience, answer: answerTime}
}

// Late returns how many were refused.
func (t *Turns) Late() uint64 { return t.late.Load() }

// Gone returns how many had left when they got their turn.
func (t *Turns) Gone() uint64 { return t.gone.Load() }

// TurnConn is a connection that can take a turn.
type TurnConn struct {
	wrapconn.Conn
	turns *Turns
	place *Place // in a waiting room; nil if there is none
	since time.Time
	holds atomic.Bool
	// settle ends what was begun; nil before.
	settle atomic.Pointer[func()]
}

// Conn wraps a connection that has just arrived. While it waits for its turn, it keeps its place in
// the waiting room, if it has one.
func (t *Turns) Conn(conn net.Conn, place *Place) *TurnConn {
	return &TurnConn{Conn: wrapconn.Conn{Conn: conn}, turns: t, place: place, since: time.Now()}
}

// Take waits for the connection's turn, which ends with the next Read. It is for
// tls.Config.GetConfigForClient, which is called when the server has received all that its part of
// the handshake needs. A client that has left meanwhile gets no turn.
func (c *TurnConn) Take(ctx context.Context) error {
	if c.place != nil {
		c.place.Hold()
		defer c.place.Release()
	}
	patience := time.NewTimer(c.turns.patience - time.Since(c.since))
	defer patience.Stop()
	if err := c.enter(ctx, c.turns.begun, patience.C); err != nil {
		return err
	}
	c.begin()
	if err := c.enter(ctx, c.turns.places, patience.C); err != nil {
		return err
	}
	c.holds.Store(true)
	if wrapconn.Ended(c.Conn) {
		c.turns.gone.Add(1)
		return errors.Join(ErrGone, c.Close())
	}
	return nil
}

// enter waits for one of some places.
func (c *TurnConn) enter(ctx context.Context, places chan<- struct{}, late <-chan time.Time) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-late:
		c.turns.late.Add(1)
		return errors.Join(ErrLate, c.Close()) // the following alert would not help
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin counts the handshake as begun, until the connection settles, is closed, or takes too long.
func (c *TurnConn) begin() {
	end := sync.OnceFunc(func() { <-c.turns.begun })
	late := time.AfterFunc(c.turns.answer, end)
	settle := func() {
		late.Stop()
		end()
	}
	c.settle.Store(&settle)
	if c.place != nil {
		c.place.whenLeft(settle)
	}
}

// End ends the turn, if it is not over: after a failed handshake there is no further Read.
func (c *TurnConn) End() {
	if c.holds.CompareAndSwap(true, false) {
		<-c.turns.places
	}
}

// Read implements net.Conn.
func (c *TurnConn) Read(p []byte) (int, error) {
	c.End()
	return c.Conn.Read(p)
}

// Close implements net.Conn.
func (c *TurnConn) Close() error {
	c.End()
	if settle := c.settle.Load(); settle != nil {
		(*settle)()
	}
	return c.Conn.Close()
}

// TakeTurn waits for the turn of a connection of a Listener with Turns; for others it returns at
// once.
func TakeTurn(ctx context.Context, c net.Conn) error {
	for {
		switch at := c.(type) {
		case *TurnConn:
			return at.Take(ctx)
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return nil
		}
	}
}
