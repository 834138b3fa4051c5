package httpserver

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Stop is how a server stops.
type Stop struct {
	// Linger is how long clients of HTTP/1.1 have to leave, in which the server still accepts
	// connections. Zero closes connections without a request at once.
	Linger time.Duration
	// Drain is how long the server may take in all. What is left then is cut off. Half of what
	// Linger leaves of it is for requests to come: those of which a part was read, and the first
	// ones of connections that are new or in their TLS handshake.
	Drain time.Duration
}

// Run serves as Serve does until it fails or the context ends, and then stops.
func Run(ctx context.Context, srv *http.Server, ln net.Listener, stop Stop) error {
	var leaving Leaving
	leaving.Watch(srv)
	s := newServer(srv, ln)
	served := make(chan error, 1)
	go func() { served <- s.serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stop.Drain)
	defer cancel()
	leaving.Leave(ctx, stop.Linger)
	s.settle(ctx, served, (stop.Drain-stop.Linger)/2)
	return shutDown(ctx, srv, served)
}

// settle stops accepting, and closes the connections of HTTP/1.1 that have no request. It waits
// until the handlers of all other requests have begun, for that time at most: a server that shuts
// down answers no request whose handler has not.
func (s *server) settle(ctx context.Context, served chan error, most time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	s.stopAccepting()
	select {
	case err := <-served:
		served <- err
	case <-ctx.Done():
	}
	s.reading.wait(ctx)
	s.SetKeepAlivesEnabled(false) // closes them
	s.reading.wait(ctx)
}

// Until runs serve, which serves with srv, until it fails or the context ends. Calls that are under
// way then have the time drain to finish. Those that are left are cut off.
func Until(ctx context.Context, srv *http.Server, drain time.Duration, serve func() error) error {
	served := make(chan error, 1)
	go func() { served <- serve() }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drain)
	defer cancel()
	return shutDown(ctx, srv, served)
}

func shutDown(ctx context.Context, srv *http.Server, served <-chan error) error {
	if srv.Shutdown(ctx) != nil {
		_ = srv.Close() // the listener is closed already
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
