package mux

import (
	"io"
	"sync"
)

const (
	// readBuffer is for headers and small frames.
	readBuffer = 4 << 10
	// restingBuffer is enough for what a session at rest receives: the multiplexer's pings, and
	// FRP's every half a minute.
	restingBuffer = 128
)

var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// input reads a session's connection through a buffer, as bufio.Reader does, but one that a session
// at rest does not keep: thousands of them have nothing to put in. It is the reading goroutine's.
type input struct {
	from       io.Reader
	resting    [restingBuffer]byte
	whole      *[readBuffer]byte // nil at rest
	begin, end int               // of what is in the buffer and has not been read
	bulk       bool              // what came last was
}

func newInput(from io.Reader) *input { return &input{from: from} }

// buffer returns the one that is in use.
func (in *input) buffer() []byte {
	if in.whole != nil {
		return in.whole[:]
	}
	return in.resting[:]
}

// heard is called with the next frame's header. Two pings come in five seconds. A ping returns the
// whole buffer if nothing is in it, so a session rests soon after a heartbeat. The next frame that
// is not small takes one again.
func (in *input) heard(h header) {
	in.bulk = h.kind == frameData && h.length > readBuffer
	switch {
	case h.kind == framePing && in.whole != nil && in.Buffered() == 0:
		readBuffers.Put(in.whole)
		in.whole = nil
	case h.kind == frameData && h.length > restingBuffer-headerSize && in.whole == nil:
		in.whole = readBuffers.Get().(*[readBuffer]byte)
		in.begin, in.end = 0, copy(in.whole[:], in.resting[in.begin:in.end])
	}
}

// Buffered returns how many bytes are there for the reading.
func (in *input) Buffered() int { return in.end - in.begin }

// holds reports whether Peek can have so many bytes.
func (in *input) holds(n int) bool { return n <= len(in.buffer()) }

// Peek returns the next n bytes, at most as many as the buffer holds. They are valid until the next
// call.
func (in *input) Peek(n int) ([]byte, error) {
	for in.Buffered() < n {
		if err := in.fill(); err != nil {
			return nil, err
		}
	}
	return in.buffer()[in.begin : in.begin+n], nil
}

// Discard skips n bytes that are buffered.
func (in *input) Discard(n int) { in.begin += n }

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	if in.Buffered() == 0 {
		if len(p) >= len(in.buffer()) {
			return in.from.Read(p) // nothing would be gained by copying it
		}
		if err := in.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.buffer()[in.begin:in.end])
	in.begin += n
	return n, nil
}

// fill reads once, behind what is there.
func (in *input) fill() error {
	buffer := in.buffer()
	if in.begin == in.end {
		in.begin, in.end = 0, 0
	} else if in.begin > 0 {
		in.begin, in.end = 0, copy(buffer, buffer[in.begin:in.end])
	}
	room := buffer[in.end:]
	if in.bulk && in.Buffered() < headerSize {
		room = room[:headerSize-in.Buffered()] // more of it would be copied twice
	}
	n, err := in.from.Read(room)
	in.end += n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
