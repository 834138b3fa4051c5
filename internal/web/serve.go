package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// The limits of a server of pages on loopback.
const (
	maxConnections = 256
	newPerSecond   = 64
	requestTimeout = 30 * time.Second
	answerTimeout  = 2 * time.Minute // a support bundle takes that long
	idleTimeout    = 2 * time.Minute
	maxHeader      = 16 << 10
	drainTimeout   = 2 * time.Second
)

// Serve serves pages on loopback until ctx ends.
func Serve(ctx context.Context, ln net.Listener, handler http.Handler, log zerolog.Logger) error {
	open, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	srv := &http.Server{
		Handler: handler, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader, DisableGeneralOptionsHandler: true,
		BaseContext: func(net.Listener) context.Context { return open },
		ErrorLog:    httpserver.ErrorLog(log, "pages: "),
	}
	drained := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(drained)
		end() // the streams
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			_ = srv.Close() // the listener is closed already
		}
	})
	err := httpserver.Serve(srv, limit.Listen(ln, limit.Config{
		Name: "pages", Connections: maxConnections, PerPeer: maxConnections, NewPerSecond: newPerSecond, Log: log,
	}))
	if stop() {
		return fmt.Errorf("serve the pages: %w", errors.Join(err, srv.Close()))
	}
	<-drained
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the pages: %w", err)
	}
	return nil
}
