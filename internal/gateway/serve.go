package gateway

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// idleTimeout is longer than the gateway keeps a stream that it does not use, so that it never
	// uses one that is being closed here. Of a stream's first request it bounds the header: the
	// gateway opens streams that it uses later.
	idleTimeout = 5 * time.Minute
)

// Leave has the gateway use other streams than those that are open now. It is called before the
// agent takes no new ones.
func (h *Handler) Leave(ctx context.Context) { h.leaving.Leave(ctx, 2*gatewaywire.StreamIdle) }

// Finish waits for the streams that the gateway opened before it opens no more: one of these may
// bring its first request only now. It is called before Serve's context ends.
func (h *Handler) Finish(ctx context.Context) {
	if retry.Wait(ctx, gatewaywire.StreamIdle) {
		h.Leave(ctx)
	}
}

// Serve takes public requests from a listener of the tunnel until the context ends. Those that are
// in progress then have the time drain to finish.
func (h *Handler) Serve(ctx context.Context, ln net.Listener, drain time.Duration) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: idleTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog: httpserver.ErrorLog(h.log, ""), DisableGeneralOptionsHandler: true,
	}
	h.leaving.Watch(srv)
	defer h.Close()
	relays := &relays{}
	life, end := context.WithCancel(context.WithValue(context.WithoutCancel(ctx), relaysKey{}, relays))
	defer relays.group.Wait()
	defer end()
	srv.BaseContext = func(net.Listener) context.Context { return life }
	return httpserver.Until(ctx, srv, drain, func() error { return srv.Serve(ln) })
}
