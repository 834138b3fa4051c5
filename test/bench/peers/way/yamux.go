package way

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sync/errgroup"
)

var errNoAgent = errors.New("the agent is not connected")

// redial is how long our own agents wait before they connect again.
const redial = time.Second

func yamuxConfig() *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.MaxStreamWindowSize = 6 << 20
	cfg.LogOutput = io.Discard
	return cfg
}

func yamuxRelay(ctx context.Context, at Place) error {
	secure, err := relayTLS(at.Dir)
	if err != nil {
		return err
	}
	ln, err := listen(ctx, at.Tunnel)
	if err != nil {
		return err
	}
	var current atomic.Pointer[yamux.Session]
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return acceptAll(ctx, tls.NewListener(ln, secure), func(conn net.Conn) {
			if session, err := yamux.Client(conn, yamuxConfig()); err == nil {
				current.Store(session)
				<-session.CloseChan()
			}
		})
	})
	group.Go(func() error {
		return relayTo(ctx, at.Public, func(context.Context) (net.Conn, error) {
			session := current.Load()
			if session == nil {
				return nil, errNoAgent
			}
			return session.Open()
		})
	})
	return group.Wait()
}

func yamuxAgent(ctx context.Context, at Place) error {
	secure, err := agentTLS(at.Dir)
	if err != nil {
		return err
	}
	return keepDialling(ctx, at.Via, secure, func(conn net.Conn) error {
		session, err := yamux.Server(conn, yamuxConfig())
		if err != nil {
			return err
		}
		return serve(ctx, yamuxListener{session}, at.Dir)
	})
}

// keepDialling connects to the relay again and again.
func keepDialling(ctx context.Context, address string, secure *tls.Config, use func(net.Conn) error) error {
	for ctx.Err() == nil {
		conn, err := (&tls.Dialer{Config: secure}).DialContext(ctx, "tcp", address)
		if err == nil {
			_ = use(conn) // it has ended, for any reason
			_ = conn.Close()
		}
		select {
		case <-ctx.Done():
		case <-time.After(redial):
		}
	}
	return nil
}

type yamuxListener struct{ *yamux.Session }

func (l yamuxListener) Accept() (net.Conn, error) {
	stream, err := l.AcceptStream()
	return yamuxStream{stream}, err
}

// yamuxStream returns the deadline error that net/http and crypto/tls expect. Otherwise HTTP/1.1
// makes a new connection for each request.
type yamuxStream struct{ *yamux.Stream }

func (s yamuxStream) Read(p []byte) (int, error) {
	n, err := s.Stream.Read(p)
	if errors.Is(err, yamux.ErrTimeout) {
		err = os.ErrDeadlineExceeded
	}
	return n, err
}
