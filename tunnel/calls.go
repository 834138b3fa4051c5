package tunnel

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"

	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/link"
)

// Why there is no stream for a call.
var (
	errNoTunnel         = errors.New("tunnel: none is up")
	errOtherCertificate = errors.New("tunnel: the one that is up was made with another certificate or other CAs than the current ones")
)

const (
	// firstPatience is how long Settle waits at most for the first attempt to connect: as long
	// as that waits for its handshake.
	firstPatience = connectTimeout
	// nextPatience is the same for the attempt after a connection was lost. It comes within a
	// second or two, unless the server has asked for more time or is gone: the API may be well.
	nextPatience = 3 * time.Second
)

// DialAPI opens a stream to the control plane's HTTPS API, for HTTP/1.1 without TLS: the session
// has TLS, and the server uses its client certificate for the call. DialAPI fails at once if no
// session is up. The API must see the current certificate, and prove itself to the current CAs. So
// if the source of the TLS configuration returns another pointer than it did for the session, both
// are proven first.
func (t *Tunnel) DialAPI(ctx context.Context) (net.Conn, error) {
	up := t.calls.Load()
	if up == nil {
		return nil, errNoTunnel
	}
	now, err := t.source(up.transport)(ctx)
	if err != nil {
		return nil, err
	}
	if now != up.made.Load() {
		if err := t.prove(ctx, up, now); err != nil {
			return nil, err
		}
	}
	stream, err := up.mux.OpenStream()
	if err != nil {
		return nil, err
	}
	return link.NewMarked(stream, link.CallMark), nil
}

// Settle returns when the first attempt to connect, or the first one after a connection was
// lost, has come to something, be it that it failed, or has taken too long. Who is about to call
// and waits for that spares both ends the handshake of a connection for the call alone.
func (t *Tunnel) Settle(ctx context.Context) { t.status.awaited().await(ctx) }

// source returns the source of the TLS configuration for a transport.
func (t *Tunnel) source(by Transport) func(context.Context) (*tls.Config, error) {
	if by == Websocket && t.cfg.WebsocketTLS != nil {
		return t.cfg.WebsocketTLS
	}
	return t.cfg.TLS
}

// DialAPI returns a Tunnel's, through any of the tunnels.
func (s *Set) DialAPI(ctx context.Context) (net.Conn, error) {
	err := errNoTunnel
	for _, m := range s.staying() {
		conn, failed := m.DialAPI(ctx)
		if failed == nil {
			return conn, nil
		}
		if !errors.Is(failed, errNoTunnel) {
			err = failed
		}
	}
	return nil, err
}

// Settle waits, as a Tunnel's does, until one of the tunnels is up or all have been tried.
func (s *Set) Settle(ctx context.Context) {
	s.mu.Lock()
	attempt := s.attempt
	s.mu.Unlock()
	attempt.await(ctx)
}

// staying returns the tunnels that are not being left.
func (s *Set) staying() (stay []*member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.members {
		if !m.leaving {
			stay = append(stay, m)
		}
	}
	return stay
}

// settled reports whether there is nothing to wait for any more. The lock is held.
func (s *Set) settled() bool {
	for _, m := range s.members {
		if !m.leaving && !m.status.awaited().isOver() {
			return s.up
		}
	}
	return s.up || len(s.members) > 0
}
