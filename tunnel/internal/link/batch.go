package link

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

const (
	// batchSize is how much may wait to be written: two TLS records. More lets a bulk
	// writer get ahead of everybody else by that much more.
	batchSize = 32 << 10
	// writeDeadlineEvery spaces setting the write deadline, which costs as much as a
	// small write's bookkeeping. The deadline is that much shorter at worst.
	writeDeadlineEvery = time.Second
	// flushTimeout bounds what Close waits for what was written before it.
	flushTimeout = 500 * time.Millisecond
	// maxRecord is TLS' own bound on what one record holds.
	maxRecord = 16 << 10
)

// What of the multiplexer's frames matters here: a data frame's header is written
// alone, ahead of the body whose length ends it.
const (
	frameHeaderSize  = 12
	frameType        = 1 // 0 is data
	frameLengthStart = 8
)

// batch writes what waits in one write: group commit, as databases call it. The
// multiplexer writes each frame's header and body separately, each of which would be a
// TLS record and a system call; those calls are what a small request costs. While one write
// is in the kernel the next ones are gathered.
//
// So a write has succeeded when it is taken, and its failure is reported by a later one, by
// Close, and by the multiplexer's reader, as the connection is then closed.
type batch struct {
	net.Conn
	below *Socket // of its TLS; nil when there is none

	mu      sync.Mutex
	wake    sync.Cond // of the flusher
	room    sync.Cond // of writers, and of Close
	waiting []byte
	body    bool // the next write is a frame's body
	busy    bool // the flusher is writing
	closing bool
	err     error

	flushed  chan struct{} // closed when the flusher has ended
	deadline time.Time     // flusher's own
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, batchSize); return &b }}

func newBatch(conn net.Conn, below *Socket) *batch {
	b := &batch{Conn: conn, below: below, flushed: make(chan struct{})}
	b.wake.L, b.room.L = &b.mu, &b.mu
	go b.flush()
	return b
}

// Write takes all of p, and waits while there is no room.
func (b *batch) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	header := !b.body && startsData(p)
	b.body = header
	for taken := 0; ; {
		for b.err == nil && !b.closing && len(b.waiting) == batchSize {
			b.room.Wait()
		}
		if b.err != nil {
			return taken, b.err
		}
		if b.closing {
			return taken, net.ErrClosed
		}
		if b.waiting == nil {
			b.waiting = (*buffers.Get().(*[]byte))[:0]
		}
		n := min(len(p)-taken, batchSize-len(b.waiting))
		b.waiting = append(b.waiting, p[taken:taken+n]...)
		if taken += n; !b.busy && (!header || len(b.waiting) == batchSize) {
			b.wake.Signal()
		}
		if taken == len(p) {
			return taken, nil
		}
	}
}

// startsData knows the header of a frame whose body comes with the next write, which is
// worth waiting for.
func startsData(p []byte) bool {
	return len(p) == frameHeaderSize && p[frameType] == 0 && binary.BigEndian.Uint32(p[frameLengthStart:]) > 0
}

// flush writes until the batch is closed or a write fails. There is a buffer only while
// there is something to write.
func (b *batch) flush() {
	defer close(b.flushed)
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for b.err == nil && !b.closing && (len(b.waiting) == 0 || b.body && len(b.waiting) < batchSize) {
			b.wake.Wait()
		}
		if b.err != nil || len(b.waiting) == 0 {
			return
		}
		data := b.waiting
		b.waiting, b.busy = nil, true
		b.room.Broadcast()
		b.mu.Unlock()
		err := b.send(data)
		b.mu.Lock()
		b.busy = false
		data = data[:0]
		buffers.Put(&data)
		if err != nil {
			b.err = err
			b.room.Broadcast()
			_ = b.Conn.Close() // the reader learns of it by that
			return
		}
	}
}

// send is one write, which may take no longer than the multiplexer would wait for it.
func (b *batch) send(data []byte) error {
	if now := time.Now(); now.Sub(b.deadline) > writeDeadlineEvery-writeTimeout {
		b.deadline = now.Add(writeTimeout)
		if err := b.SetWriteDeadline(b.deadline); err != nil {
			return err
		}
	}
	if b.below == nil || len(data) <= maxRecord {
		_, err := b.Conn.Write(data)
		return err
	}
	b.below.hold()
	_, err := b.Conn.Write(data)
	return errors.Join(err, b.below.release())
}

// Close writes what waits, if that does not take long, closes the connection, and joins
// the flusher.
func (b *batch) Close() error {
	b.mu.Lock()
	b.closing = true
	b.wake.Signal()
	b.room.Broadcast()
	b.mu.Unlock()
	late := time.AfterFunc(flushTimeout, func() { _ = b.Conn.Close() })
	<-b.flushed
	late.Stop()
	err := b.Conn.Close()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err != nil {
		return b.err
	}
	return err
}
