package mux

import (
	"net"
	"sync"
	"time"
)

const (
	// batchSize is how much bulk may wait to be sent: two TLS records. More lets a bulk
	// writer get ahead of everybody else by that much more.
	batchSize = 32 << 10
	// batchWhole is how much longer a batch may become so that a frame stays whole: it is
	// what the headers of two TLS records in it, and of their frames, take.
	batchWhole = 256
	// batchRoom is how much may wait in all. What is beyond batchSize is for small frames,
	// which thus do not wait for bulk.
	batchRoom = 56 << 10
	// MaxBatch is more than is ever written at once: the rest is for answers to the other
	// end, which must not wait.
	MaxBatch = 64 << 10
	// smallFrame is what may go beyond batchSize, and what its writer may send itself.
	smallFrame = 4 << 10

	// writeDeadlineEvery spaces setting the write deadline, which costs as much as a
	// small write's bookkeeping. The deadline is that much shorter at worst.
	writeDeadlineEvery = time.Second
	// flushTimeout bounds what closing waits for what was written before it.
	flushTimeout = 500 * time.Millisecond
	// maxRecord is TLS' own bound on what one record holds.
	maxRecord = 16 << 10
)

// Corked is a connection below TLS that can hold back what is written to it until there is
// all of it, and then write it at once.
type Corked interface {
	Cork()
	Uncork() error
}

// batch is what waits to be sent. While one batch is in the kernel the next is gathered:
// group commit, as databases call it. What a small request costs is system calls.
//
// So a write has succeeded when it is taken, and its failure ends the session.
type batch struct {
	conn    net.Conn
	below   Corked // of its TLS; nil when there is none
	timeout time.Duration
	failed  func(error)

	mu       sync.Mutex
	room     sync.Cond
	waiting  []byte
	buffer   *[]byte // what waiting is in
	busy     bool    // somebody sends
	last     uint32  // the stream whose data came last
	closed   bool
	err      error
	deadline time.Time // of the sender, of whom there is one
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, MaxBatch); return &b }}

// put appends a frame without a body. Where now is set it does not wait for room, and
// answers whether there was some.
func (b *batch) put(h header, now bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !now && b.err == nil && !b.closed && len(b.waiting) > batchRoom-headerSize {
		b.room.Wait()
	}
	if b.err != nil || b.closed || len(b.waiting) > MaxBatch-headerSize {
		return false
	}
	b.take()
	b.waiting = h.append(b.waiting)
	b.flushSoon()
	return true
}

// data appends a frame with as much of p as there is room for, at most limit, and answers
// how much that was; zero when there is no room. A small frame that is said to be lone goes
// to the kernel from here when its stream was the last to send as well: there is nobody to
// gather with.
func (b *batch) data(stream uint32, p []byte, lone bool) (int, error) {
	b.mu.Lock()
	if err := b.usable(); err != nil {
		b.mu.Unlock()
		return 0, err
	}
	n := b.fits(len(p))
	if n == 0 {
		b.mu.Unlock()
		return 0, nil
	}
	b.take()
	b.waiting = header{kind: frameData, stream: stream, length: uint32(n)}.append(b.waiting)
	b.waiting = append(b.waiting, p[:n]...)
	lone = lone && !b.busy && b.last == stream && len(b.waiting) <= smallFrame
	b.last = stream
	if !lone {
		b.flushSoon()
		b.mu.Unlock()
		return n, nil
	}
	b.busy = true
	b.sendWaiting()
	b.rest()
	err := b.err
	b.mu.Unlock()
	return n, err
}

func (b *batch) usable() error {
	if b.closed && b.err == nil {
		return ErrSessionClosed
	}
	return b.err
}

// fits is how much of n bytes may be put into a frame now. A frame is cut only where the
// batch would be sent with much less than it can hold.
func (b *batch) fits(n int) int {
	has := len(b.waiting) + headerSize
	switch {
	case n <= smallFrame && has+n <= batchRoom, has+n <= batchSize+batchWhole:
		return n
	case has < batchSize/2:
		return batchSize - has
	default:
		return 0
	}
}

// awaitRoom waits until a frame of that much may fit. Deadlines of streams are looked at
// by whoever calls: room comes, or the session ends, within the write timeout.
func (b *batch) awaitRoom(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.usable() == nil && b.fits(n) == 0 {
		b.room.Wait()
	}
}

func (b *batch) take() {
	if b.buffer == nil {
		b.buffer = buffers.Get().(*[]byte)
		b.waiting = (*b.buffer)[:0]
	}
}

// flushSoon has what waits sent by a goroutine, which there is only while there is
// something to send.
func (b *batch) flushSoon() {
	if b.busy {
		return
	}
	b.busy = true
	go func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for len(b.waiting) > 0 && b.err == nil {
			b.sendWaiting()
		}
		b.rest()
	}()
}

// rest ends sending. What came meanwhile is for another to send: whoever sends what is its
// own is not kept for others.
func (b *batch) rest() {
	b.busy = false
	if len(b.waiting) > 0 && b.err == nil {
		b.flushSoon()
	}
	b.room.Broadcast() // close may wait
}

// sendWaiting sends what waits, without the lock, so that the next batch can be gathered.
func (b *batch) sendWaiting() {
	data, buffer := b.waiting, b.buffer
	b.waiting, b.buffer = nil, nil
	b.room.Broadcast()
	b.mu.Unlock()
	err := b.send(data)
	buffers.Put(buffer)
	if err != nil {
		b.failed(err)
	}
	b.mu.Lock()
	if err != nil && b.err == nil {
		b.err = err
		b.room.Broadcast()
	}
}

// send is one write, which may take no longer than the timeout.
func (b *batch) send(data []byte) error {
	if now := time.Now(); now.Sub(b.deadline) > writeDeadlineEvery-b.timeout {
		b.deadline = now.Add(b.timeout)
		if err := b.conn.SetWriteDeadline(b.deadline); err != nil {
			return err
		}
	}
	if b.below == nil || len(data) <= maxRecord {
		_, err := b.conn.Write(data)
		return err
	}
	b.below.Cork()
	_, err := b.conn.Write(data)
	if late := b.below.Uncork(); err == nil {
		err = late
	}
	return err
}

// close takes nothing more, gives what waits a moment to go out, and closes the
// connection.
func (b *batch) close() error {
	late := time.AfterFunc(flushTimeout, func() { _ = b.conn.Close() })
	defer late.Stop()
	b.mu.Lock()
	b.closed = true
	b.room.Broadcast()
	for b.busy {
		b.room.Wait()
	}
	b.mu.Unlock()
	return b.conn.Close()
}
