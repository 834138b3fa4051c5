package way

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"

	"github.com/hashicorp/yamux"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

func yamuxConfig() *yamux.Config {
	cfg := yamux.DefaultConfig()
	cfg.MaxStreamWindowSize = 6 << 20
	cfg.LogOutput = io.Discard
	return cfg
}

func yamuxRelay(ctx context.Context, at Place) {
	var current atomic.Pointer[yamux.Session]
	together(
		func() error {
			return acceptAll(tls.NewListener(listen(ctx, at.Tunnel), relayTLS(at.Dir)), func(conn net.Conn) {
				current.Store(run.Must(yamux.Client(conn, yamuxConfig())))
			})
		},
		func() error {
			return relayTo(ctx, at.Public, func() (net.Conn, error) {
				if session := current.Load(); session != nil {
					return session.Open()
				}
				return nil, errors.New("the agent is not connected")
			})
		},
	)
}

func yamuxAgent(ctx context.Context, at Place) {
	keepDialling(ctx, at, agentTLS(at.Dir), func(conn net.Conn) {
		_ = serve(yamuxListener{run.Must(yamux.Server(conn, yamuxConfig()))}, at.Dir) // to the connection's end
	})
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
