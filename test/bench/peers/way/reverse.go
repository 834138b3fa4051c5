package way

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/net/http2"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const reverseWindow = 6 << 20

// reverseRelay runs an HTTP/2 client on the connections that agents made. Each connection of a
// Runner is the body of a request there, and of its answer back.
func reverseRelay(ctx context.Context, at Place) {
	secure := relayTLS(at.Dir)
	secure.NextProtos = []string{http2.NextProtoTLS}
	transport := &http2.Transport{MaxReadFrameSize: 64 << 10}
	var current atomic.Pointer[http2.ClientConn]
	together(
		func() error {
			return acceptAll(listen(ctx, at.Tunnel), func(raw net.Conn) {
				conn := tls.Server(raw, secure)
				run.Check(conn.HandshakeContext(ctx))
				current.Store(run.Must(transport.NewClientConn(conn)))
			})
		},
		func() error {
			return acceptAll(listen(ctx, at.Public), func(runner net.Conn) {
				defer func() { _ = runner.Close() }()
				c := current.Load()
				if c == nil {
					return
				}
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				req := run.Must(http.NewRequestWithContext(ctx, http.MethodPost, "https://"+relayName+"/", struct{ io.Reader }{runner}))
				resp := run.Must(c.RoundTrip(req))
				defer func() { _ = resp.Body.Close() }()
				_, _ = io.CopyBuffer(struct{ io.Writer }{runner}, resp.Body, make([]byte, 64<<10))
			})
		},
	)
}

// reverseAgent serves HTTP/2 on the connection that it made. Each request is a connection, which
// continues to the agent's port: an HTTP/2 stream has no deadlines that can be cleared, which an
// HTTP/1.1 server needs.
func reverseAgent(ctx context.Context, at Place) {
	secure := agentTLS(at.Dir)
	secure.NextProtos = []string{http2.NextProtoTLS}
	srv := &http2.Server{
		MaxConcurrentStreams: 1024, MaxReadFrameSize: 64 << 10,
		MaxUploadBufferPerConnection: 4 * reverseWindow, MaxUploadBufferPerStream: reverseWindow,
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reverseServe(w, r, at.Local) })
	together(
		func() error { return serveAt(ctx, at.Local, at.Dir) },
		func() error {
			keepDialling(ctx, at, secure, func(conn net.Conn) {
				srv.ServeConn(conn, &http2.ServeConnOpts{Context: ctx, Handler: handler})
			})
			return nil
		},
	)
}

func reverseServe(w http.ResponseWriter, r *http.Request, local string) {
	conn, err := new(net.Dialer).DialContext(r.Context(), "tcp", local)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	control := http.NewResponseController(w)
	_ = control.Flush() // the header, before there is a body
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_, _ = io.Copy(struct{ io.Writer }{conn}, r.Body)
		_ = conn.Close()
	}()
	buffer := make([]byte, 64<<10)
	for err == nil {
		var n int
		n, err = conn.Read(buffer)
		_, _ = w.Write(buffer[:n])
		_ = control.Flush()
	}
	_ = conn.Close()
	_ = r.Body.Close()
	<-sent
}
