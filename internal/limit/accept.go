package limit

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// acceptPause is how long accepting rests when it fails, as it does when the system is out
// of file descriptors.
const acceptPause = 100 * time.Millisecond

// Accept accepts connections until the context ends, then closes the listener and returns when all
// work is done. It calls take in the order of arrival, and runs the returned work in a goroutine.
// It calls failed if a connection could not be accepted.
func Accept(ctx context.Context, ln net.Listener, failed func(error), take func(net.Conn) (work func())) error {
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if conn != nil {
				_ = conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			failed(err)
			retry.Wait(ctx, acceptPause)
			continue
		}
		wg.Go(take(conn))
	}
}
