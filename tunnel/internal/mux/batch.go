package mux

import (
	"net"
	"sync"
	"time"
)

const (
	// batchSize is how much bulk may wait to be sent: two TLS records. A larger batch lets a bulk
	// writer get ahead of all others by that much more.
	batchSize = 32 << 10
	// littleSize is enough for a session at rest: pings, including FRP's, windows, and a heartbeat.
	// When ten thousand sessions each took a whole batch for these, they held 100 MB.
	littleSize = 1 << 10
	// batchWhole is how much longer a batch may become so that a frame stays whole. It is the size
	// of the headers of two TLS records in it, and of their frames.
	batchWhole = 256
	// batchRoom is how much may wait in all. The part beyond batchSize is for small frames, such as
	// those of two hundred Runners at once, which then do not wait for bulk.
	batchRoom = 256 << 10
	// mostWaiting is what may wait including answers to the other end, which must not wait for
	// room.
	mostWaiting = batchRoom + 8<<10
	// MaxWrite is the maximum size of one write.
	MaxWrite = 64 << 10
	// smallFrame is the size up to which a frame may go beyond batchSize.
	smallFrame = 4 << 10
	// largeFrame is the size of bulk frames: a TLS record of the Runner's.
	largeFrame = maxRecord + 32

	// writeDeadlineEvery is the interval of setting the write deadline, which costs as much as the
	// rest of a small write. The deadline is shorter by that much at worst.
	writeDeadlineEvery = time.Second
	// flushTimeout bounds how long closing waits for earlier writes.
	flushTimeout = 500 * time.Millisecond
	// maxRecord is TLS' own bound on the content of one record.
	maxRecord = 16 << 10
)

// Corked is a connection below TLS that can hold back writes until they are complete, and then
// write them at once.
type Corked interface {
	Cork()
	Uncork() error
}

// batch is the data that waits to be sent. While one batch is in the kernel, the next one is
// gathered (group commit, in databases). System calls are the main cost of a small request.
//
// So a write succeeds when its data is accepted, and a later failure ends the session.
type batch struct {
	conn    net.Conn
	below   Corked // of its TLS; nil when there is none
	timeout time.Duration
	failed  func(error)

	mu       sync.Mutex
	room     sync.Cond // of bulk
	small    sync.Cond // the room of small frames
	rested   sync.Cond // no goroutine sends
	waiting  []byte
	frame    int     // where in it the newest frame begins, which belongs to the stream in last
	grows    bool    // so that more of that stream goes into it
	buffer   *[]byte // what waiting is in
	busy     bool    // a goroutine sends
	last     uint32  // the stream whose data came last
	closed   bool
	err      error
	deadline time.Time // of the single sender
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

// put appends a frame without a body. If now is set, it does not wait for room, and reports whether
// there was some.
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

// data appends a frame with p, or with as much of its beginning as there is room for. It returns
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

// append appends p to the newest frame if that is of the same stream, so that the receiver gets one
// write. Otherwise it begins another frame.
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

// next wakes one more of the writers that wait for room, if there is some. So each wakes the next,
// and the room for one does not wake all.
func (b *batch) next() {
	if b.fits(0) >= 0 {
		b.small.Signal()
	}
	if b.fits(largeFrame) > 0 {
		b.room.Signal()
	}
}

// ended returns why no more data is accepted.
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

// fits returns how much of n bytes may be put into a frame now, or less than zero if it must wait.
// A frame is cut only if the batch would otherwise be sent with much less than it can hold.
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

// take prepares a buffer for n more bytes; a whole one replaces a little one.
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

// close accepts no more data, gives waiting data a moment to be sent, and closes the connection.
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

// release wakes all writers that wait for room, since there will be none.
func (b *batch) release() {
	b.room.Broadcast()
	b.small.Broadcast()
}
