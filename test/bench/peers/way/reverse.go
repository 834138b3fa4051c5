package way

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/sync/errgroup"
)

const reverseWindow = 6 << 20

// reverseRelay returns an HTTP/2 client on the connections that agents made. Each connection of a
// Runner is the body of a request there, and of its answer back.
func reverseRelay(ctx context.Context, at Place) error {
	secure, err := relayTLS(at.Dir)
	if err != nil {
		return err
	}
	secure.NextProtos = []string{http2.NextProtoTLS}
	agents, err := listen(ctx, at.Tunnel)
	if err != nil {
		return err
	}
	runners, err := listen(ctx, at.Public)
	if err != nil {
		return err
	}
	transport := &http2.Transport{MaxReadFrameSize: 64 << 10}
	var current atomic.Pointer[http2.ClientConn]
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return acceptAll(ctx, agents, func(raw net.Conn) {
			conn := tls.Server(raw, secure)
			if err := conn.HandshakeContext(ctx); err != nil {
				_ = raw.Close()
				return
			}
			if c, err := transport.NewClientConn(conn); err == nil {
				current.Store(c)
			}
		})
	})
	group.Go(func() error {
		return acceptAll(ctx, runners, func(runner net.Conn) {
			defer func() { _ = runner.Close() }()
			if c := current.Load(); c != nil {
				_ = reverseOne(ctx, c, runner) // it has ended, for any reason
			}
		})
	})
	return group.Wait()
}

func reverseOne(ctx context.Context, c *http2.ClientConn, runner net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+relayName+"/", onlyReader{runner})
	if err != nil {
		return err
	}
	resp, err := c.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	_, err = io.CopyBuffer(onlyWriter{runner}, resp.Body, make([]byte, 64<<10))
	return err
}

type onlyReader struct{ io.Reader }

type onlyWriter struct{ io.Writer }

// reverseAgent serves HTTP/2 on the connection that it made. Each request is a connection, which
// continues to the agent's port: an HTTP/2 stream has no deadlines that can be cleared, which an
// HTTP/1.1 server needs.
func reverseAgent(ctx context.Context, at Place) error {
	secure, err := agentTLS(at.Dir)
	if err != nil {
		return err
	}
	secure.NextProtos = []string{http2.NextProtoTLS}
	srv := &http2.Server{
		MaxConcurrentStreams: 1024, MaxReadFrameSize: 64 << 10,
		MaxUploadBufferPerConnection: 4 * reverseWindow, MaxUploadBufferPerStream: reverseWindow,
	}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { reverseServe(w, r, at.Local) })
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveLocal(ctx, at) })
	group.Go(func() error {
		return keepDialling(ctx, at.Via, secure, func(conn net.Conn) error {
			srv.ServeConn(conn, &http2.ServeConnOpts{Context: ctx, Handler: handler})
			return nil
		})
	})
	return group.Wait()
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
		_, _ = io.Copy(onlyWriter{conn}, r.Body)
		_ = conn.Close()
	}()
	buffer := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buffer)
		if n > 0 {
			_, _ = w.Write(buffer[:n])
			_ = control.Flush()
		}
		if err != nil {
			break
		}
	}
	_ = conn.Close()
	_ = r.Body.Close()
	<-sent
}
