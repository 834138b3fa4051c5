package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// streamStall is how long a browser may take to read one event.
	streamStall = 10 * time.Second
	// keepAlive is how often an idle stream shows that it is alive.
	keepAlive = 15 * time.Second
	// pace is how long a stream rests after it has sent something. Changes come in bursts.
	pace = 300 * time.Millisecond
)

// Streams counts the open streams.
type Streams struct{ free chan struct{} }

// NewStreams returns room for so many streams: one for each open page.
func NewStreams(most int) *Streams { return &Streams{make(chan struct{}, most)} }

// Stream sends server-sent events to one page.
type Stream struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	ended func() bool
}

// errSignedOut ends a stream. The browser connects again, and hears then that it has no session.
var errSignedOut = errors.New("the session has ended")

// Open begins a stream, which sends nothing after the end of the request's session. done must be
// called at its end.
func (s *Streams) Open(w http.ResponseWriter, r *http.Request) (stream *Stream, done func(), err error) {
	select {
	case s.free <- struct{}{}:
	default:
		return nil, nil, problem.Errorf(problem.TooManyRequests, "close some of the open pages", "%d pages are open", cap(s.free)).WithRetryAfter(keepAlive)
	}
	ctx := r.Context()
	session := SessionOf(ctx)
	stream = &Stream{w, http.NewResponseController(w), func() bool { return session.ended(ctx) }}
	_ = stream.conn.SetReadDeadline(time.Time{}) // the server's is for one request; tests have none
	w.Header().Set("Content-Type", "text/event-stream")
	_ = stream.conn.SetWriteDeadline(time.Time{})
	return stream, func() { <-s.free }, stream.flush()
}

// Send sends a part of a page. The id is what the browser names when it connects again.
func (s *Stream) Send(id string, text []byte) error {
	var event bytes.Buffer
	if id != "" {
		event.WriteString("id: " + id + "\n")
	}
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		event.WriteString("data: ")
		event.Write(bytes.TrimSuffix(line, []byte("\r")))
		event.WriteByte('\n')
	}
	event.WriteByte('\n')
	return s.write(event.Bytes())
}

// Ping shows that the stream is alive.
func (s *Stream) Ping() error { return s.write([]byte(": \n\n")) }

func (s *Stream) write(event []byte) error {
	if s.ended() {
		return errSignedOut
	}
	_ = s.conn.SetWriteDeadline(time.Now().Add(streamStall))    // tests have none
	defer func() { _ = s.conn.SetWriteDeadline(time.Time{}) }() // HTTP/2 ends a stream at its deadline, written to or not
	if _, err := s.w.Write(event); err != nil {
		return err
	}
	return s.flush()
}

func (s *Stream) flush() error { return s.conn.Flush() }

// Follow sends what render returns now and after each change, if it differs, until ctx ends or the
// page is closed.
func (s *Stream) Follow(ctx context.Context, changes <-chan struct{}, render func() ([]byte, error)) error {
	alive := time.NewTicker(keepAlive)
	defer alive.Stop()
	var sent []byte
	for {
		text, err := render()
		if err != nil {
			return err
		}
		if !bytes.Equal(text, sent) {
			if err := s.Send("", text); err != nil {
				return err
			}
			sent = text
			retry.Wait(ctx, pace)
		}
		if more, err := s.await(ctx, changes, alive.C); !more {
			return err
		}
	}
}

// await returns at the next change, and reports whether there may be one.
func (s *Stream) await(ctx context.Context, changes <-chan struct{}, alive <-chan time.Time) (more bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, nil
		case _, more = <-changes:
			return more, nil
		case <-alive:
			if err := s.Ping(); err != nil {
				return false, err
			}
		}
	}
}
