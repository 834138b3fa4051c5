package gatewaywire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

const relayBuffer = 64 << 10

var relayBuffers = sync.Pool{New: func() any { return new([relayBuffer]byte) }}

// Relay copies between two connections until both directions have ended, either fails, nothing was
// sent for the time idle, or the context ends. It closes both. One direction may end before the
// other. sent and got are called with the bytes that went to far and to near; they may be nil.
func Relay(ctx context.Context, near, far net.Conn, idle time.Duration, sent, got func(int)) {
	r := &relay{near: near, far: far, idle: idle, began: time.Now()}
	defer context.AfterFunc(ctx, r.hangUp)()
	r.timer = time.NewTimer(idle)
	over := make(chan struct{})
	var parts sync.WaitGroup
	parts.Go(func() { r.watch(over) })
	var back sync.WaitGroup
	back.Go(func() { r.flow(near, far, got) })
	r.flow(far, near, sent)
	back.Wait()
	close(over)
	r.hangUp()
	parts.Wait()
}

type relay struct {
	near, far net.Conn
	idle      time.Duration
	began     time.Time
	last      atomic.Int64 // when something was sent, since began
	timer     *time.Timer
}

func (r *relay) hangUp() {
	_ = r.near.Close()
	_ = r.far.Close()
}

// watch ends connections on which nothing is sent.
func (r *relay) watch(over <-chan struct{}) {
	defer r.timer.Stop()
	for {
		select {
		case <-over:
			return
		case <-r.timer.C:
		}
		left := r.idle - (time.Since(r.began) - time.Duration(r.last.Load()))
		if left <= 0 {
			r.hangUp()
			return
		}
		r.timer.Reset(left)
	}
}

// flow copies one way. Errors are the usual end of a connection.
func (r *relay) flow(dst, src net.Conn, count func(int)) {
	buffer := relayBuffers.Get().(*[relayBuffer]byte)
	defer relayBuffers.Put(buffer)
	for {
		n, err := src.Read(buffer[:])
		if n > 0 {
			if _, failed := dst.Write(buffer[:n]); failed != nil {
				r.hangUp()
				return
			}
			r.last.Store(int64(time.Since(r.began)))
			if count != nil {
				count(n)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && (wrapconn.Conn{Conn: dst}).CloseWrite() == nil:
			return
		default:
			r.hangUp()
			return
		}
	}
}

// Resume returns a connection that continues with what a reader of it has read ahead.
func Resume(conn net.Conn, ahead *bufio.Reader) (net.Conn, error) {
	rest, err := ahead.Peek(ahead.Buffered())
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if len(rest) == 0 {
		return conn, nil
	}
	return &resumed{wrapconn.Conn{Conn: conn}, bytes.NewReader(bytes.Clone(rest))}, nil
}

type resumed struct {
	wrapconn.Conn
	ahead *bytes.Reader
}

// Read implements io.Reader.
func (r *resumed) Read(p []byte) (int, error) {
	if r.ahead.Len() > 0 {
		return r.ahead.Read(p)
	}
	return r.Conn.Read(p)
}
