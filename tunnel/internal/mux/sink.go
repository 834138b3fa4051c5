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
		s.got.push(c)
		s.readable.Signal()
	}
	in.Discard(n)
	if more := s.renew(); more > 0 && !s.session.out.put(header{kind: frameWindow, stream: s.id, length: more}, true) {
		s.credit -= more // said with what is read next
	}
	return true
}
