package limit

import (
	"context"
	"errors"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

// Turns has a few TLS handshakes computed at a time, in the order in which they were asked
// for. Thousands side by side all take as long as all of them together, which is longer
// than any client waits: then each was computed in vain. A turn is as long as the
// computing: it ends when the server waits for the client's answer, so that clients that
// are slow or far away hold up nobody.
type Turns struct {
	places   chan struct{}
	patience time.Duration
	late     atomic.Uint64
	gone     atomic.Uint64
}

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
	return &Turns{places: make(chan struct{}, 2*runtime.GOMAXPROCS(0)), patience: patience}
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
	select {
	case c.turns.places <- struct{}{}:
		c.holds.Store(true)
		if hasEnded(c.Conn) {
			c.turns.gone.Add(1)
			return errors.Join(ErrGone, c.Close())
		}
		return nil
	case <-patience.C:
		c.turns.late.Add(1)
		return errors.Join(ErrLate, c.Close()) // the alert that follows would be no help
	case <-ctx.Done():
		return ctx.Err()
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
