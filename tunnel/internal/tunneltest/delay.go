package tunneltest

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"
)

// delayed is what is on its way.
type delayed struct {
	due  time.Time
	data []byte
}

// NewDelay forwards TCP to target, each way as much later as a long wire would. It returns the
// address to connect to.
func NewDelay(t testing.TB, target string, oneWay time.Duration) string {
	t.Helper()
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := new(net.Dialer).DialContext(ctx, "tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = near.Close(), far.Close() })
			all.Go(func() { slowly(near, far, oneWay) })
			all.Go(func() { slowly(far, near, oneWay) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		cancel()
		all.Wait()
	})
	return ln.Addr().String()
}

func slowly(dst, src net.Conn, oneWay time.Duration) {
	wire := make(chan delayed, 4096)
	var sending sync.WaitGroup
	sending.Go(func() {
		defer func() { _ = dst.Close() }()
		for d := range wire {
			time.Sleep(time.Until(d.due)) // it is what this is for
			if _, err := dst.Write(d.data); err != nil {
				_ = src.Close()
				for range wire { // the reader must not be kept
				}
				return
			}
		}
	})
	for {
		buffer := make([]byte, 64<<10)
		n, err := src.Read(buffer)
		if n > 0 {
			wire <- delayed{time.Now().Add(oneWay), buffer[:n]}
		}
		if err != nil {
			break
		}
	}
	close(wire)
	sending.Wait()
}
