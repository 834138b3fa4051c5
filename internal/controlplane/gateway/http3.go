package gateway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/zerologr"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// maxUniStreams bounds a visitor's streams of HTTP/3's own. It needs three.
	maxUniStreams = 16
	// unproven is how many connections a second may begin before visitors have to prove their
	// addresses. That costs them a round trip, and others cannot use up an address' share.
	unproven = 256
	// altSvc announces HTTP/3 at a port, which browsers remember for a day.
	altSvc = `h3=":%d"; ma=86400`
)

// errLimit refuses a connection.
var errLimit = errors.New("too many connections")

// ServeHTTP3 serves HTTP/3 until the context ends, and closes packets. enter counts a connection of
// an address, and refuses it beyond the limits.
func (g *Gateway) ServeHTTP3(ctx context.Context, packets net.PacketConn, enter func(net.Addr) (leave func(), ok bool)) error {
	patience := g.cfg.Patience
	g.cfg.Table.await(ctx, patience.Start)
	pace := rate.NewLimiter(unproven, unproven)
	transport := &quic.Transport{
		Conn: packets, VerifySourceAddress: func(net.Addr) bool { return !pace.Allow() },
		ConnContext: func(ctx context.Context, info *quic.ClientInfo) (context.Context, error) {
			leave, ok := enter(info.RemoteAddr)
			if !ok {
				return nil, errLimit
			}
			context.AfterFunc(ctx, leave)
			return ctx, nil
		},
	}
	defer func() { _ = errors.Join(transport.Close(), packets.Close()) }()
	secure := g.cfg.TLS.Clone()
	listener, err := transport.Listen(http3.ConfigureTLSConfig(secure), &quic.Config{
		HandshakeIdleTimeout: patience.Header / 2, // quic-go doubles it for the whole handshake
		MaxIdleTimeout:       patience.Progress, KeepAlivePeriod: patience.Progress / 3,
		MaxIncomingStreams: maxStreams, MaxIncomingUniStreams: maxUniStreams,
	})
	if err != nil {
		return fmt.Errorf("HTTP/3: %w", err)
	}
	idle := &idleConns{first: patience.Header, between: patience.Idle}
	log := g.cfg.Log
	srv := &http3.Server{
		Handler: &overQUIC{g, patience.Progress}, MaxHeaderBytes: maxHeader, ConnContext: idle.watch,
		Logger: slog.New(logr.ToSlogHandler(zerologr.New(&log))),
	}
	stopped := make(chan struct{})
	defer func() { <-stopped }()
	ended, end := context.WithCancel(ctx)
	defer func() {
		end()
		_ = listener.Close() // established connections go on
	}()
	go func() {
		defer close(stopped)
		<-ended.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
		defer cancel()
		idle.drain()
		_ = srv.Shutdown(limited) // it cuts off those that are left
	}()
	if err := srv.ServeListener(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// overQUIC makes requests of HTTP/3 like those of net/http.
type overQUIC struct {
	gateway  http.Handler
	progress time.Duration
}

// ServeHTTP implements http.Handler.
func (o *overQUIC) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if conn, ok := r.Context().Value(idleKey{}).(*idleConn); ok {
		conn.begin()
		defer conn.end()
	}
	moving := &movingWriter{w, http.NewResponseController(w), o.progress}
	defer moving.extend() // for what is sent after the handler
	if r.Method == http.MethodConnect {
		problem.Write(moving, "", problem.New(http.StatusNotImplemented, "not_supported", "use HTTP/1.1 for WebSockets", "CONNECT is not supported"))
		return
	}
	switch err := withoutBody(r, moving); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		r.Body = lateBody{r.Body}
	case err != nil:
		panic(http.ErrAbortHandler)
	}
	o.gateway.ServeHTTP(moving, r)
}

// bodyless are the methods whose requests seldom have a body. HTTP/3 does not say in the header
// whether there is one, and the App would receive an empty body in chunks.
var bodyless = map[string]bool{http.MethodGet: true, http.MethodHead: true, http.MethodOptions: true, http.MethodDelete: true}

// withoutBody makes a request without a body one that says so.
func withoutBody(r *http.Request, w *movingWriter) error {
	if r.ContentLength > 0 || r.ContentLength < 0 && !bodyless[r.Method] {
		return nil
	}
	if r.ContentLength < 0 {
		var first [1]byte
		_ = w.rc.SetReadDeadline(time.Now().Add(w.within)) // QUIC has deadlines
		n, err := io.ReadFull(r.Body, first[:])
		switch {
		case n > 0:
			r.Body = &begunBody{r.Body, first, false}
			return nil
		case !errors.Is(err, io.EOF):
			return err
		}
	}
	r.Body, r.ContentLength = http.NoBody, 0
	return nil
}

// begunBody is a body whose first byte was read.
type begunBody struct {
	io.ReadCloser
	first [1]byte
	given bool
}

// Read implements io.Reader.
func (b *begunBody) Read(p []byte) (int, error) {
	if b.given || len(p) == 0 {
		return b.ReadCloser.Read(p)
	}
	b.given = true
	return copy(p, b.first[:]), nil
}

// lateBody is a body whose first byte did not arrive in time.
type lateBody struct{ io.ReadCloser }

// Read implements io.Reader.
func (lateBody) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

// movingWriter is an answer whose receiver has to keep accepting it.
type movingWriter struct {
	http.ResponseWriter
	rc     *http.ResponseController
	within time.Duration
}

func (w *movingWriter) extend() { _ = w.rc.SetWriteDeadline(time.Now().Add(w.within)) } // QUIC has deadlines

// WriteHeader implements http.ResponseWriter.
func (w *movingWriter) WriteHeader(status int) {
	w.extend()
	w.ResponseWriter.WriteHeader(status)
	if status == http.StatusNoContent {
		_ = w.rc.Flush() // quic-go would add a Content-Length, against RFC 9110, section 8.6
	}
}

// Write implements io.Writer.
func (w *movingWriter) Write(p []byte) (int, error) {
	w.extend()
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *movingWriter) FlushError() error {
	w.extend()
	return w.rc.Flush()
}

// Unwrap makes the other abilities available to http.ResponseController.
func (w *movingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
