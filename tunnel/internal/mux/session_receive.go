package mux

import (
	"fmt"
	"io"
)

func (s *Session) receive() {
	defer close(s.received)
	for {
		h, err := s.readHeader()
		if err == nil {
			err = s.handle(h)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

func (s *Session) readHeader() (header, error) {
	b, err := s.in.Peek(headerSize)
	if err != nil {
		return header{}, err
	}
	h, ok := parseHeader(b)
	if !ok {
		return header{}, fmt.Errorf("%w: version %d, type %d", ErrProtocol, b[0], b[1])
	}
	s.in.Discard(headerSize)
	s.in.heard(h)
	return h, nil
}

// handle is called in the reading goroutine, which must not wait for the other end to read: both
// would wait for each other.
func (s *Session) handle(h header) error {
	switch h.kind {
	case framePing:
		return s.handlePing(h)
	case frameGoAway:
		if h.length != goAwayNormal {
			return fmt.Errorf("%w: the other end goes away (%d)", ErrProtocol, h.length)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.refuses = true
		return nil
	}
	stream, opened, err := s.streamOf(h)
	if err != nil {
		return err
	}
	if stream == nil {
		return s.skip(h)
	}
	if opened {
		s.cfg.Accept(stream)
	}
	if h.kind == frameWindow {
		stream.moreRoom(h.length)
	} else if err := s.receiveData(stream, h.length); err != nil {
		return err
	}
	stream.flagged(h.flags)
	return nil
}

// streamOf returns the stream that a frame is for, and whether the frame opens it. The stream is
// nil if it is already gone.
func (s *Session) streamOf(h header) (stream *Stream, opened bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stream = s.streams[h.stream]
	if h.flags&flagSYN == 0 || s.err != nil {
		return stream, false, nil
	}
	if stream != nil || h.stream%2 == s.nextID%2 {
		return nil, false, s.complain("stream %d is opened again", h.stream)
	}
	answer := header{kind: frameWindow, flags: flagACK, stream: h.stream}
	if s.cfg.Accept == nil {
		answer.flags = flagRST
	} else {
		stream = newStream(s, h.stream)
	}
	if !s.out.put(answer, true) {
		return nil, false, s.complain("too many streams at once")
	}
	if stream != nil {
		s.streams[h.stream] = stream
	}
	return stream, stream != nil, nil
}

// complain returns an error about the other end's violation of the protocol, and reports it to that
// end.
func (s *Session) complain(format string, args ...any) error {
	s.out.put(header{kind: frameGoAway, length: goAwayProtocol}, true)
	return fmt.Errorf("%w: "+format, append([]any{ErrProtocol}, args...)...)
}

func (s *Session) skip(h header) error {
	if h.kind != frameData {
		return nil
	}
	_, err := io.CopyN(io.Discard, s.in, int64(h.length))
	return err
}

// receiveData reads a frame's body: a small one whole, a large one piece by piece as it arrives.
func (s *Session) receiveData(stream *Stream, length uint32) error {
	if !stream.mayReceive(length) {
		return s.complain("more data than stream %d has room for", stream.id)
	}
	if n := int(length); n > 0 && s.in.holds(n) {
		if _, err := s.in.Peek(n); err != nil {
			return err
		}
		if stream.takeSpare(s.in, n) {
			return nil
		}
	}
	for left := int(length); left > 0; {
		c := newChunk(left)
		n, err := io.ReadFull(s.in, c.memory[:min(left, len(c.memory))])
		if err != nil {
			c.free()
			return err
		}
		c.end = n
		stream.take(c)
		left -= n
	}
	return nil
}
