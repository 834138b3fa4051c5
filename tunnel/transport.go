package tunnel

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/dialrace"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/mux"
)

// Transport is the transport by which a tunnel reaches the control plane.
type Transport string

// The transports.
const (
	// TCP is TLS on a connection to the tunnel's own port: the better transport.
	TCP Transport = "tcp"
	// It is WebSocket on the HTTPS API's port, for networks that block everything else.
	Websocket Transport = "websocket"
)

// Fallback decides when the WebSocket is tried. Zero values select the defaults.
type Fallback struct {
	// HeadStart is how long only TCP is tried before the WebSocket is tried as well (5 s).
	HeadStart time.Duration
	// Patience is how long TCP must have failed before the WebSocket is tried, once TCP has worked:
	// a control plane that restarts is not a firewall (30 s). A port that does not answer at all is
	// taken for a firewall's after HeadStart.
	Patience time.Duration
	// Retry is the mean interval of checks whether TCP works again (10 min).
	Retry time.Duration
}

func (f Fallback) withDefaults() Fallback {
	f.HeadStart = cmp.Or(f.HeadStart, 5*time.Second)
	f.Patience = cmp.Or(f.Patience, 30*time.Second)
	f.Retry = cmp.Or(f.Retry, 10*time.Minute)
	return f
}

// line is an established and authenticated connection to the control plane.
type line struct {
	net.Conn
	below     *link.Socket // of its TLS
	transport Transport
	made      *tls.Config // what the source of its TLS configuration returned
}

// memory is what is known about the transports.
type memory struct {
	patience time.Duration

	mu          sync.Mutex
	first       Transport // tried first
	tcpWorked   bool      // since the start
	failedSince time.Time // the beginning of TCP's current failures; zero for none
	dialing     bool      // the port has not answered the current attempt
}

// order returns the transport to try first, and the other one.
func (m *memory) order() (first, second Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.first == Websocket {
		return Websocket, TCP
	}
	return TCP, Websocket
}

// worked records a transport over which the agent is connected.
func (m *memory) worked(w Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first = w
	if w == TCP {
		m.tcpWorked, m.failedSince = true, time.Time{}
	}
}

// failed records that TCP did not work, and reports whether to try the other transport.
func (m *memory) failed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failedSince.IsZero() {
		m.failedSince = time.Now()
	}
	return !m.tcpWorked || m.dialing || time.Since(m.failedSince) >= m.patience
}

// dial records whether the tunnel's port has yet to answer.
func (m *memory) dial(waiting bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dialing = waiting
}

// suspect records a TCP connection that was made but let nothing through: the other transport is
// tried first the next time.
func (m *memory) suspect() {
	if m.failed() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.first = Websocket
	}
}

// prefer makes a transport be tried first the next time.
func (m *memory) prefer(w Transport) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first = w
}

// connect makes the connection by the transport that worked last, and by the other one if that
// fails or takes long.
func (t *Tunnel) connect(ctx context.Context) (*line, error) {
	if t.cfg.Websocket == "" {
		return t.connectTCP(ctx)
	}
	first, second := t.transports.order()
	waiting := []Transport{first, second}
	got, failed := dialrace.Race[*line]{
		Patience: t.cfg.Fallback.HeadStart,
		Next: func() func(context.Context) (*line, error) {
			if len(waiting) == 0 || len(waiting) == 1 && first == TCP && !t.transports.failed() {
				return nil // it may be too early for the WebSocket
			}
			w := waiting[0]
			waiting = waiting[1:]
			return func(ctx context.Context) (*line, error) { return t.connectBy(ctx, w) }
		},
		Close: func(l *line) { _ = l.Close() },
	}.Run(ctx)
	switch failures := byTransport(failed); {
	case got != nil && got.transport == Websocket && len(waiting) == 0:
		t.cfg.Log.Warn().Err(failures[TCP]).Msg("the tunnel's port is unreachable; using a WebSocket")
	case got == nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case got == nil:
		return nil, t.explain.neither(failures[TCP], failures[Websocket])
	}
	return got, nil
}

func (t *Tunnel) connectBy(ctx context.Context, w Transport) (l *line, err error) {
	if w == TCP {
		l, err = t.connectTCP(ctx)
	} else {
		l, err = t.connectWebsocket(ctx)
	}
	if err != nil {
		return nil, &transportError{w, err}
	}
	return l, nil
}

// transportError is why a connection could not be made by a transport.
type transportError struct {
	transport Transport
	error
}

func byTransport(failed []error) map[Transport]error {
	failures := map[Transport]error{}
	for _, err := range failed {
		if known, ok := errors.AsType[*transportError](err); ok {
			failures[known.transport] = known.error
		}
	}
	return failures
}

// returnToTCP checks from time to time whether the better transport works again. If it does, it
// becomes the first to be tried, and the session is ended as soon as no Runner is connected through
// it.
func (t *Tunnel) returnToTCP(ctx context.Context, mux *mux.Session, idle func() bool) (moved bool) {
	works := false
	for {
		wait := t.cfg.Fallback.Retry/2 + rand.N(t.cfg.Fallback.Retry) //nolint:gosec // spreading load needs no secrecy
		if works {
			wait = min(wait, time.Second) // only until the Runners are gone
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-mux.CloseChan():
			timer.Stop()
			return false
		}
		if !works {
			works = t.tryTCP(ctx) == nil
		}
		if works && !t.draining.Load() {
			t.transports.prefer(TCP)
			if idle() {
				t.cfg.Log.Info().Msg("the tunnel's port is reachable again")
				return true
			}
		}
	}
}

// tryTCP connects as far as the server's acceptance of the certificate.
func (t *Tunnel) tryTCP(ctx context.Context) error {
	conn, err := t.connectTCP(ctx)
	if err != nil {
		return err
	}
	return t.ping(ctx, conn)
}
