// Package transport is what is below the calls of the Runner API: TLS, which Runners are admitted,
// their connections, and how these end.
package transport

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// The windows of the server hold any body whole, so that no upload is slow, and little more: a
// Runner may fill them, and the agent has little memory.
const (
	uploadWindow            = 2 << 20
	uploadWindowsConnection = 8 << 20
	maxReadFrame            = 64 << 10
)

// ServeConfig configures Serve.
type ServeConfig struct {
	Handler http.Handler // of NewServer
	TLS     *tls.Config  // from ServerTLS; nil for plain text, in tests and for health alone
	// Limits bounds what Runners can use. It needs TLS, which identifies the caller.
	Limits Limits
	// CallTimeout bounds each whole call, from its header to the end of its answer. Zero means no
	// bound, as logs are followed for hours.
	CallTimeout time.Duration
	// Drain is how long open calls may go on after ctx ended; 10 s when zero. Waits and followed
	// logs end at once: their callers resume them.
	Drain time.Duration
	// Changed returns a channel that is closed when some admitted Runners may no longer be allowed
	// to stay. Their connections are then checked again, and cut. Nil means never.
	Changed func() <-chan struct{}
	Log     zerolog.Logger
}

// Serve serves calls on the listener until ctx ends. It then lets open calls finish and closes the
// listener. It returns nil if ctx ended it.
func Serve(ctx context.Context, ln net.Listener, c ServeConfig) error {
	c.Drain = cmp.Or(c.Drain, 10*time.Second)
	drain, startDrain := context.WithCancel(context.WithoutCancel(ctx))
	defer startDrain()
	var upgraded sync.WaitGroup
	defer upgraded.Wait() // each ends as the drain starts, and its close has a timeout
	srv := newHTTPServer(context.WithValue(drain, upgradedKey{}, &upgraded), &c)
	tracker := &connTracker{open: map[*trackedConn]struct{}{}}
	ln = trackingListener{guarded(ln, &c), tracker}
	if c.Changed != nil { // to the end of the drain
		watching, stop := context.WithCancel(context.WithoutCancel(ctx))
		var watch sync.WaitGroup
		defer watch.Wait()
		defer stop()
		watch.Go(func() { tracker.watch(watching, c.Changed) })
	}
	drained := make(chan struct{})
	// No goroutine waits for the end of ctx: benchmarks run thousands of agents in one process.
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		startDrain()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Drain)
		defer cancel()
		if err := srv.Shutdown(grace); err != nil {
			c.Log.Warn().Err(err).Dur("drain", c.Drain).Msg("runner API: aborted calls at shutdown")
			_ = srv.Close() // the listener is closed already, which is the only possible error
		}
	})
	err := httpserver.Serve(srv, ln)
	if stop() {
		startDrain()
		return errors.Join(fmt.Errorf("runner API: the listener failed: %w", err), srv.Close())
	}
	<-drained
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("runner API: the listener failed: %w", err)
	}
	return nil
}

// guarded takes the configuration by pointer, as newHTTPServer does: the serving goroutine keeps
// the stack of this call.
func guarded(ln net.Listener, c *ServeConfig) net.Listener {
	if c.TLS == nil {
		return ln
	}
	return guardListener(ln, c.Limits.WithDefaults(), c.Log)
}

// maxHeader has room for 64 KiB in one header or in a URL: kubectl exec sends its command in the
// query.
const maxHeader = 72 << 10

func newHTTPServer(drain context.Context, c *ServeConfig) *http.Server {
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	srv := &http.Server{
		Handler:           withChains(c.Handler),
		ConnContext:       withTracked,
		Protocols:         protocols, // explicit, because entries in TLSNextProto would turn HTTP/2 off
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){wire.RefreshProtocol: serveRefresh},
		TLSConfig:         c.TLS,
		ReadHeaderTimeout: 10 * time.Second,
		// OPTIONS * gets the same answer as any unknown call.
		DisableGeneralOptionsHandler: true,
		IdleTimeout:                  5 * time.Minute,
		MaxHeaderBytes:               maxHeader,
		// No write timeout, which would cut followed logs. Calls set their own.
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          wire.MaxStreams,
			MaxReadFrameSize:              maxReadFrame,
			MaxReceiveBufferPerConnection: uploadWindowsConnection,
			MaxReceiveBufferPerStream:     uploadWindow,
			SendPingTimeout:               wire.PingAfter,
			PingTimeout:                   wire.PingTimeout,
			WriteByteTimeout:              c.Limits.WithDefaults().Stall,
		},
		BaseContext: func(net.Listener) context.Context {
			return context.WithValue(context.WithoutCancel(drain), drainKey{}, drain)
		},
		ErrorLog: httpserver.ErrorLog(c.Log, "runner API: "),
	}
	if c.CallTimeout > 0 {
		srv.ReadTimeout, srv.WriteTimeout, srv.IdleTimeout = c.CallTimeout, c.CallTimeout, c.CallTimeout
	}
	if c.TLS != nil {
		l := c.Limits.WithDefaults()
		srv.ConnState = (&connections{shares: limit.NewShares(l.Connections, l.ConnectionsPerRunner), log: c.Log, told: limit.Seldom()}).state
	}
	return srv
}

type drainKey struct{}

// upgradedKey is the context key of the group of calls whose connections were hijacked. net/http
// does not wait for them on shutdown.
type upgradedKey struct{}

// EnterUpgraded makes the server wait for the caller to leave.
func EnterUpgraded(ctx context.Context) (leave func()) {
	calls, ok := ctx.Value(upgradedKey{}).(*sync.WaitGroup)
	if !ok {
		return func() {}
	}
	calls.Add(1)
	return calls.Done
}

// UntilDrain returns a context that also ends when the server starts to drain.
func UntilDrain(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	drain, ok := ctx.Value(drainKey{}).(context.Context)
	if !ok {
		return ctx, cancel
	}
	stop := context.AfterFunc(drain, cancel)
	return ctx, func() { stop(); cancel() }
}

// Drained reports whether the server of ctx's call is shutting down.
func Drained(ctx context.Context) bool {
	drain, ok := ctx.Value(drainKey{}).(context.Context)
	return ok && drain.Err() != nil
}
