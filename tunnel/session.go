package tunnel

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// loginTimeout bounds the time from a connection to a registered proxy.
const loginTimeout = 20 * time.Second

// session makes one connection and returns when and why it has ended.
func (t *Tunnel) session(ctx context.Context) error {
	conn, err := t.connect(ctx)
	if err != nil {
		return t.explain.connect(err)
	}
	remembering := &causeConn{Conn: conn}
	var sent goAway
	var beside sync.WaitGroup // ends with the multiplexer
	defer beside.Wait()
	offers, public, leaving := &link.Gate{}, &atomic.Int64{}, &atomic.Bool{}
	mux := link.Client(remembering, conn.below, func(opened *mux.Stream) { beside.Go(func() { t.opened(opened, &sent, offers, public, leaving) }) })
	defer func() { _ = mux.Close() }()
	t.live.Store(mux)
	defer t.live.Store(nil)
	if t.draining.Load() {
		return errSessionOver
	}
	// A session is ended only by closing the connection: frpc then stops by itself, from any state.
	stop := context.AfterFunc(ctx, func() { _ = mux.Close() })
	defer stop()

	defer offers.Shut()
	defer func() { _ = mux.Close() }()
	trying, stopTrying := context.WithCancel(ctx)
	defer stopTrying()
	frp, moved := &connector{mux: mux, public: public}, atomic.Bool{}
	if conn.transport == Websocket {
		beside.Go(func() {
			if t.returnToTCP(trying, mux, frp.idle) {
				moved.Store(true)
				_ = mux.Close()
			}
		})
	}
	// In a goroutine, because frpc's own goroutine must not be blocked.
	accept := func(c net.Conn) {
		if !offers.Go(func() { t.listener.offer(c, mux.CloseChan()) }) {
			_ = c.Close()
		}
	}
	defer t.calls.Store(nil)
	up, err := t.speak(frp, accept, newCallable(mux, conn)) //nolint:contextcheck // the connection's end is frpc's, and ctx' end the connection's
	switch cause := remembering.cause(); {
	case moved.Load():
		return errBetterTransport
	case cause != nil && ctx.Err() == nil:
		return t.explain.lost(cause)
	case sent.heard() != nil:
		return t.explain.goAway(sent.heard())
	case !up && conn.transport == TCP && ctx.Err() == nil && !isRefusal(err):
		t.transports.suspect()
	}
	return err
}

// errBetterTransport ends a session that is replaced by one over a better transport.
var errBetterTransport = errors.New("there is a better transport")

// speak runs FRP's part of a session, from its login to its end. It also reports whether the tunnel
// was up.
func (t *Tunnel) speak(conn *connector, accept func(net.Conn), session *callable) (up bool, err error) {
	deadline := time.NewTimer(loginTimeout)
	defer deadline.Stop()
	f, err := logIn(login{t.cfg.AgentID, t.cfg.Instance, t.cfg.Cluster()}, conn, accept)
	if err != nil {
		_ = conn.Close()
		return false, t.explain.login(err)
	}
	select {
	case err = <-f.messages.proxied:
	case <-f.control.Done():
		return false, t.explain.lost(errSessionOver)
	case <-deadline.C:
		err = errNoAnswer
	}
	if err != nil {
		_ = conn.Close()
		<-f.control.Done()
		return false, t.explain.login(err)
	}
	deadline.Stop()
	t.transports.worked(session.transport)
	t.calls.Store(session)
	t.status.connected(session.transport)
	t.cfg.Log.Info().Str("transport", string(session.transport)).Msg("tunnel is up")
	<-f.control.Done()
	return true, t.explain.lost(errSessionOver)
}

// causeConn remembers why reading failed, which the multiplexer only logs. In TLS 1.3 a client
// learns by reading that its certificate was refused.
type causeConn struct {
	net.Conn
	mu  sync.Mutex
	err error
}

func (c *causeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.mu.Lock()
		if c.err == nil {
			c.err = err
		}
		c.mu.Unlock()
	}
	return n, err
}

// cause returns the error if it is more specific than the end of the connection.
func (c *causeConn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if alert, ok := errors.AsType[*net.OpError](c.err); ok && alert.Op == "remote error" {
		return c.err
	}
	return nil
}
