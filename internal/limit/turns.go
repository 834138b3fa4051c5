package limit

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Turns has a few TLS handshakes computed at a time, in the order in which they were asked
// for. Thousands side by side all take as long as all of them together, which is longer
// than any client waits: then each was computed in vain. A turn is as long as the
// computing: it ends when the server waits for the client's answer, so that clients that
// are slow or far away hold up nobody.
//
// Nor are all begun before any is finished, for then the clients' answers come all together,
// too late for most. Those that were begun and have not come to their end are of a bounded
// number; one that takes longer than answerTime is counted no more.
type Turns struct {
	begun    chan struct{}
	places   chan struct{}
	patience time.Duration
	answer   time.Duration
	late     atomic.Uint64
	gone     atomic.Uint64
}

const (
	// begunPerProcessor come to their end in a quarter of a second where the clients are
	// near, and at 250 a second and processor from the other end of the world.
	begunPerProcessor = 64
	// answerTime is a handshake, a login and an answer over the longest of ways that work.
	answerTime = time.Second
)

var (
	// ErrLate ends a handshake whose turn did not come in time.
	ErrLate = errors.New("too many handshakes at a time")
	// ErrGone ends a handshake whose client did not wait for its turn.
	ErrGone = errors.New("the client has given up")
)

// NewTurns makes turns for as many as there are processors to compute them, and as many
// more that are ready. Whoever has waited for longer than patience, by when the client will
// give up, is turned away without one.
func NewTurns(patience time.Duration) *Turns {
	n := runtime.GOMAXPROCS(0)
	return &Turns{begun: make(chan struct{}, begunPerProcessor*n), places: make(chan struct{}, 2*n), patience: patience, answer: answerTime}
}

// Late is how many were turned away.
func (t *Turns) Late() uint64 { return t.late.Load() }

// Gone is how many had left when their turn came.
func (t *Turns) Gone() uint64 { return t.gone.Load() }

// TurnConn is a connection that can take a turn.
type TurnConn struct {
	net.Conn
	turns *Turns
	place *Place // in a waiting room; nil for none
	since time.Time
	holds atomic.Bool
	// settle ends what was begun; nil before.
	settle atomic.Pointer[func()]
}

// Conn makes one, of a connection that has just come. It keeps its place in the waiting
// room, if it has one, while it waits for its turn.
func (t *Turns) Conn(conn net.Conn, place *Place) *TurnConn {
	return &TurnConn{Conn: conn, turns: t, place: place, since: time.Now()}
}

// Take waits for the connection's turn, which ends with the next Read. It is for
// tls.Config.GetConfigForClient, which is called when the client has said all that the
// server's part takes. A client that has gone meanwhile gets no turn.
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
	if hasEnded(c.Conn) {
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
		return errors.Join(ErrLate, c.Close()) // the alert that follows would be no help
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin counts the handshake as begun, until the connection settles, is closed, or takes long.
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

// End ends the turn, if it is not over: when a handshake has failed, nothing is read any more.
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

// NetConn is the connection below.
func (c *TurnConn) NetConn() net.Conn { return c.Conn }

// CloseWrite ends one direction.
func (c *TurnConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}

// SyscallConn implements syscall.Conn, for socket options.
func (c *TurnConn) SyscallConn() (syscall.RawConn, error) {
	if system, ok := c.Conn.(syscall.Conn); ok {
		return system.SyscallConn()
	}
	return nil, errors.ErrUnsupported
}

// TakeTurn waits for the turn of a connection of a Listener with Turns; others go on at once.
func TakeTurn(ctx context.Context, c net.Conn) error {
	for {
		switch at := c.(type) {
		case *TurnConn:
			return at.Take(ctx)
		case *conn:
			c = at.Conn
		case interface{ NetConn() net.Conn }:
			c = at.NetConn()
		default:
			return nil
		}
	}
}
