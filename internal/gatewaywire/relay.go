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

// waiter is a connection that waits for something to read without a buffer for it. There may be
// many flows of datagrams that have nothing to say.
type waiter interface{ Await() error }

// Relay copies between two connections until both directions have ended, either fails, nothing was
// sent for the time idle, or the context ends. It closes both. One direction may end before the
// other. sent and got are called with the bytes that went to far and to near; they may be nil.
//
// Each Write has what one Read returned, so that datagrams stay what they are.
func Relay(ctx context.Context, near, far io.ReadWriteCloser, idle time.Duration, sent, got func(int)) {
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
	near, far io.ReadWriteCloser
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
func (r *relay) flow(dst, src io.ReadWriteCloser, count func(int)) {
	for {
		n, err := pass(dst, src)
		if n > 0 || err == nil {
			r.last.Store(int64(time.Since(r.began)))
			if count != nil {
				count(n)
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && wrapconn.CloseWrite(dst) == nil:
			return
		default:
			r.hangUp()
			return
		}
	}
}

// pass copies what there is next.
func pass(dst io.Writer, src io.Reader) (int, error) {
	if w, ok := src.(waiter); ok {
		if err := w.Await(); err != nil {
			return 0, err
		}
	}
	buffer := relayBuffers.Get().(*[relayBuffer]byte)
	defer relayBuffers.Put(buffer)
	n, err := src.Read(buffer[:])
	if n == 0 && err != nil {
		return 0, err
	}
	if _, failed := dst.Write(buffer[:n]); failed != nil {
		return 0, errWrite
	}
	return n, err
}

// errWrite is not io.EOF, which a connection that is closed may return.
var errWrite = errors.New("the other end accepts no more")

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
