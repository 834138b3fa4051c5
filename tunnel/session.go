package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fatedier/frp/client/proxy"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

const (
	// loginTimeout bounds the time from a connection to a registered proxy.
	loginTimeout = 20 * time.Second
	// pollInterval is how soon frpc is asked whether its proxy runs, which it does not
	// tell by itself, and maxPoll how seldom at last. Only while logging in.
	pollInterval, maxPoll = 10 * time.Millisecond, 200 * time.Millisecond
)

// session makes one connection and returns when it has ended, and why.
func (t *Tunnel) session(ctx context.Context) error {
	conn, err := t.connect(ctx)
	if err != nil {
		return t.connectError(err)
	}
	remembering := &causeConn{Conn: conn}
	var told farewell
	var beside sync.WaitGroup // ends with the multiplexer
	defer beside.Wait()
	mux := link.Accepting(remembering, conn.below, func(opened *mux.Stream) { beside.Go(func() { told.hear(opened) }) })
	defer func() { _ = mux.Close() }()
	t.live.Store(mux)
	defer t.live.Store(nil)
	if t.draining.Load() {
		return errSessionOver
	}
	// Closing the connection is the only way a session is ended: frpc then stops by
	// itself, from whatever state it is in.
	stop := context.AfterFunc(ctx, func() { _ = mux.Close() })
	defer stop()

	offers := &link.Gate{}
	defer offers.Shut()
	defer func() { _ = mux.Close() }()
	trying, stopTrying := context.WithCancel(ctx)
	defer stopTrying()
	frp, moved := &connector{mux: mux}, atomic.Bool{}
	if conn.way == Websocket {
		beside.Go(func() {
			if t.returnToTCP(trying, mux, frp.idle) {
				moved.Store(true)
				_ = mux.Close()
			}
		})
	}
	// In a goroutine because frpc's own goroutine must not be kept waiting.
	f, err := newFRPC(login{t.cfg.AgentID, t.cfg.Instance, t.cfg.Cluster()}, frp, func(c net.Conn) {
		if !offers.Go(func() { t.listener.offer(c, mux.CloseChan()) }) {
			_ = c.Close()
		}
	})
	if err != nil {
		return fmt.Errorf("tunnel: set up frpc: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- f.run(ctx) }()

	defer t.calls.Store(nil)
	up, err := t.watch(f, newCallable(mux, conn), conn.calls, ended, func() { _ = mux.Close() })
	switch cause := remembering.cause(); {
	case moved.Load():
		return errBetterWay
	case cause != nil && ctx.Err() == nil:
		return t.lostError(cause)
	case told.heard() != nil:
		return t.farewellError(told.heard())
	case !up && conn.way == TCP && ctx.Err() == nil && !isRefusal(err):
		t.ways.suspect()
	}
	return err
}

// errBetterWay ends a session that another takes the place of, by a better way.
var errBetterWay = errors.New("there is a better way")

// watch follows frpc from login to its end. It also reports whether the tunnel was up.
func (t *Tunnel) watch(f *frpc, session *callable, calls bool, ended <-chan error, hangUp func()) (up bool, err error) {
	wait := pollInterval
	poll := time.NewTimer(wait)
	defer poll.Stop()
	deadline := time.NewTimer(loginTimeout)
	defer deadline.Stop()
	var failure error
	for {
		select {
		case err := <-ended:
			switch {
			case err != nil:
				return up, t.loginError(err)
			case failure != nil:
				return up, t.loginError(failure)
			default:
				return up, t.lostError(errSessionOver)
			}
		case <-poll.C:
			switch phase, problem := f.phase(); phase {
			case proxy.ProxyPhaseRunning:
				poll.Stop()
				deadline.Stop()
				up = true
				t.ways.worked(session.way)
				if calls {
					t.calls.Store(session)
				}
				t.status.connected(session.way)
				t.cfg.Log.Info().Str("way", string(session.way)).Msg("tunnel is up")
			case proxy.ProxyPhaseStartErr:
				poll.Stop()
				failure = errors.New(problem)
				hangUp()
			default:
				wait = min(wait+wait/4, maxPoll)
				poll.Reset(wait)
			}
		case <-deadline.C:
			failure = fmt.Errorf("no answer within %s", loginTimeout)
			hangUp()
		}
	}
}

// causeConn remembers why reading failed, which the multiplexer only logs. In TLS 1.3 that
// is where a client learns that its certificate was refused.
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

// cause returns the error if it says more than that the connection ended.
func (c *causeConn) cause() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var alert *net.OpError
	if errors.As(c.err, &alert) && alert.Op == "remote error" {
		return c.err
	}
	return nil
}
