package httpserver

import (
	"context"
	"errors"
	"net/http"
	"time"
)

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
	if srv.Shutdown(ctx) != nil {
		_ = srv.Close() // the listener is closed already
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
