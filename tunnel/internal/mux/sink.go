package mux

import "io"

// Sink is a writer that can also take what goes at once.
type Sink interface {
	io.Writer
	// TryWrite writes as much of p as goes without waiting, and answers how much that was. It
	// leaves errors to Write.
	TryWrite(p []byte) int
}

// pass gives n bytes, which are there for the reading, to whom WriteTo writes to, from the
// goroutine that reads the session: waking WriteTo's would cost more than the rest of a small
// frame's way. It answers whether they are dealt with; what the sink does not take at once is
// WriteTo's, so that a slow one holds nobody up.
func (s *Stream) pass(in *input, n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sink == nil || s.got.size > 0 || s.closed {
		return false
	}
	data, _ := in.Peek(n) // they are in memory
	passed := s.sink.TryWrite(data)
	s.heard()
	s.credit -= uint32(n) //nolint:gosec // mayReceive has looked
	if passed < n {
		c := newChunk(n - passed)
		c.end = copy(c.memory, data[passed:])
		s.keep(c)
	}
	in.Discard(n)
	s.grantNow()
	return true
}

// passOrKeep is pass for what is in a chunk already: bulk, of which the same is true, as it comes in
// pieces of the size of a batch.
func (s *Stream) passOrKeep(c *chunk) {
	if s.sink == nil || s.got.size > 0 {
		s.keep(c)
		return
	}
	c.begin = s.sink.TryWrite(c.unread())
	if c.begin < c.end {
		s.keep(c)
	} else {
		c.free()
	}
	s.grantNow()
}

// keep has who reads the stream have it.
func (s *Stream) keep(c *chunk) {
	s.got.push(c)
	s.readable.Signal()
}

// grantNow is grant in the goroutine that reads the session, which waits for nobody.
func (s *Stream) grantNow() {
	if more := s.renew(); more > 0 && !s.session.out.put(header{kind: frameWindow, stream: s.id, length: more}, true) {
		s.credit -= more // said with what is read next
	}
}
