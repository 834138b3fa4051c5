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
	// littleSize is enough for what a session at rest says: pings, FRP's too, windows, and a heartbeat. Ten
	// thousand sessions that each took a whole batch for them held 100 MB.
	littleSize = 1 << 10
	// batchWhole is how much longer a batch may become so that a frame stays whole: it is
	// what the headers of two TLS records in it, and of their frames, take.
	batchWhole = 256
	// batchRoom is how much may wait in all. What is beyond batchSize is for small frames,
	// which thus do not wait for bulk: those of two hundred Runners at once.
	batchRoom = 256 << 10
	// mostWaiting is what may wait with answers to the other end, which must not wait for
	// room.
	mostWaiting = batchRoom + 8<<10
	// MaxWrite is what is written at once, at most.
	MaxWrite = 64 << 10
	// smallFrame is what may go beyond batchSize.
	smallFrame = 4 << 10
	// largeFrame is what bulk comes in: a TLS record of the Runner's.
	largeFrame = maxRecord + 32

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
	room     sync.Cond // of bulk
	small    sync.Cond // the room of small frames
	rested   sync.Cond // nobody sends
	waiting  []byte
	frame    int     // where in it the newest frame begins, which is of the stream that was last
	grows    bool    // so that more of that stream goes into it
	buffer   *[]byte // what waiting is in
	busy     bool    // somebody sends
	last     uint32  // the stream whose data came last
	closed   bool
	err      error
	deadline time.Time // of the sender, of whom there is one
}

var (
	buffers = sync.Pool{New: func() any { b := make([]byte, 0, batchSize+batchWhole); return &b }}
	littles = sync.Pool{New: func() any { b := make([]byte, 0, littleSize); return &b }}
)

func newBatch(conn net.Conn, below Corked, timeout time.Duration, failed func(error)) *batch {
	b := &batch{conn: conn, below: below, timeout: timeout, failed: failed}
	b.room.L, b.small.L, b.rested.L = &b.mu, &b.mu, &b.mu
	return b
}

// put appends a frame without a body. Where now is set it does not wait for room, and
// answers whether there was some.
func (b *batch) put(h header, now bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !now && b.usable() == nil && b.fits(0) < 0 {
		b.small.Wait()
	}
	if b.usable() != nil || len(b.waiting) > mostWaiting-headerSize {
		return false
	}
	b.take(headerSize)
	b.waiting, b.grows = h.append(b.waiting), false
	b.flushSoon()
	b.next()
	return true
}

// data appends a frame with p or as much of its beginning as there is room for, and returns
// how much that was.
func (b *batch) data(stream uint32, p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.fits(len(p))
	for n < 0 && b.usable() == nil {
		if len(p) <= smallFrame {
			b.small.Wait()
		} else {
			b.room.Wait()
		}
		n = b.fits(len(p))
	}
	if err := b.usable(); err != nil {
		return 0, err
	}
	b.take(headerSize + n)
	b.append(stream, p[:n])
	b.last = stream
	b.flushSoon()
	b.next()
	return n, nil
}

// append appends p to the newest frame where that is of the same stream: who gets it has one write to
// make of it. Else it begins another.
func (b *batch) append(stream uint32, p []byte) {
	h := header{kind: frameData, stream: stream, length: uint32(len(p))} //nolint:gosec // fits in a batch
	if b.grows && b.last == stream {
		h.length += uint32(len(b.waiting) - b.frame - headerSize) //nolint:gosec // fits in a batch
		h.append(b.waiting[:b.frame])
	} else {
		b.frame, b.grows = len(b.waiting), true
		b.waiting = h.append(b.waiting)
	}
	b.waiting = append(b.waiting, p...)
}

// next wakes one more of those who wait for room, where there is some. So each wakes the
// next, and not all for the room of one.
func (b *batch) next() {
	if b.fits(0) >= 0 {
		b.small.Signal()
	}
	if b.fits(largeFrame) > 0 {
		b.room.Signal()
	}
}

// ended is why nothing is taken any more.
func (b *batch) ended() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usable()
}

func (b *batch) usable() error {
	if b.closed && b.err == nil {
		return ErrSessionClosed
	}
	return b.err
}

// fits is how much of n bytes may be put into a frame now, less than zero when it has to
// wait. A frame is cut only where the batch would be sent with much less than it can hold.
func (b *batch) fits(n int) int {
	has := len(b.waiting) + headerSize
	switch {
	case n <= smallFrame && has+n <= batchRoom, has+n <= batchSize+batchWhole:
		return n
	case has < batchSize/2:
		return batchSize - has
	default:
		return -1
	}
}

// take readies a buffer for n more bytes; a little one gives way to a whole one.
func (b *batch) take(n int) {
	little, has, kind := b.buffer, b.waiting, &buffers
	switch {
	case little == nil && n <= littleSize:
		kind = &littles
	case little != nil && (cap(has) >= batchSize || cap(has)-len(has) >= n):
		return
	}
	b.buffer = kind.Get().(*[]byte)
	b.waiting = append((*b.buffer)[:0], has...) //nolint:gocritic // what was has goes into the new one
	if little != nil {
		littles.Put(little)
	}
}

// close takes nothing more, gives what waits a moment to go out, and closes the
// connection.
func (b *batch) close() error {
	late := time.AfterFunc(flushTimeout, func() { _ = b.conn.Close() })
	defer late.Stop()
	b.mu.Lock()
	b.closed = true
	b.release()
	for b.busy {
		b.rested.Wait()
	}
	b.mu.Unlock()
	return b.conn.Close()
}

// release has all who wait for room see that there will be none.
func (b *batch) release() {
	b.room.Broadcast()
	b.small.Broadcast()
}
