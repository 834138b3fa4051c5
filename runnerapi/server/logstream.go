package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

const (
	// headDelay is how long the status of a silent log is held back. An error that comes first can
	// then still be the response.
	headDelay = 500 * time.Millisecond
	// maxPending is how far the backend may be ahead of a slow reader, in bytes.
	maxPending = 64 << 10
)

// logStream carries lines from a backend to the caller. All lines that arrive during one write go
// out with the next: a slow log is sent line by line, a fast one in batches.
type logStream struct {
	w           http.ResponseWriter
	rc          *http.ResponseController
	contentType string
	encode      wire.Encoder
	stall       time.Duration // how long the caller may read nothing

	mu      sync.Mutex
	pending bytes.Buffer
	room    *sync.Cond // pending was taken, or the caller is gone
	gone    error      // why nothing can be written any more

	wake wake.Signal // there is something pending
	head bool        // the status was sent; of the writing goroutine alone
}

func newLogStream(w http.ResponseWriter, contentType string, encode wire.Encoder, stall time.Duration) *logStream {
	s := &logStream{
		w: w, rc: http.NewResponseController(w), contentType: contentType, encode: encode, stall: stall,
		wake: wake.New(),
	}
	s.room = sync.NewCond(&s.mu)
	return s
}

// run calls produce and writes what it emits until it returns. If nothing was sent yet, run returns
// produce's error, so that the caller can send it as the response. Later errors have already become
// the last line of the log.
func (s *logStream) run(ctx context.Context, produce func(context.Context, func(runnerapi.LogLine) error) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- produce(ctx, s.emit) }()
	defer context.AfterFunc(ctx, func() { s.fail(ctx.Err()) })()

	head := time.NewTimer(headDelay)
	defer head.Stop()
	for {
		select {
		case err := <-done:
			return s.finish(err)
		case <-head.C:
			s.write(true)
		case <-s.wake:
			s.write(false)
		}
	}
}

// emit takes one line from the backend. It blocks while the caller is slow and
// fails when the caller is gone.
func (s *logStream) emit(line runnerapi.LogLine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.gone == nil && s.pending.Len() > maxPending {
		s.room.Wait()
	}
	if s.gone != nil {
		return s.gone
	}
	s.encode(&s.pending, wire.LogRecord{LogLine: line})
	s.wake.Raise()
	return nil
}

// write sends the pending lines. The status goes first, also on its own.
func (s *logStream) write(statusToo bool) {
	s.mu.Lock()
	batch := bytes.Clone(s.pending.Bytes())
	s.pending.Reset()
	s.room.Broadcast()
	s.mu.Unlock()
	if len(batch) == 0 && (!statusToo || s.head) {
		return
	}
	// A log may take any time, but the reader must read what there is.
	_ = s.rc.SetWriteDeadline(time.Now().Add(s.stall))
	defer func() { _ = s.rc.SetWriteDeadline(time.Time{}) }()
	if !s.head {
		s.head = true
		s.w.Header().Set("Content-Type", s.contentType)
		s.w.WriteHeader(http.StatusOK)
	}
	if _, err := s.w.Write(batch); err != nil {
		s.fail(err)
		return
	}
	if err := s.rc.Flush(); err != nil {
		s.fail(err)
	}
}

// finish sends the rest and, if the log broke off, the reason.
func (s *logStream) finish(err error) error {
	if err != nil && !s.head && s.empty() {
		return err
	}
	known := &runnerapi.Error{}
	if err != nil && errors.As(err, &known) {
		s.mu.Lock()
		s.encode(&s.pending, wire.LogRecord{Error: known})
		s.mu.Unlock()
	}
	s.write(true)
	return nil
}

func (s *logStream) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pending.Len() == 0
}

// fail makes the backend's next emit fail.
func (s *logStream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone == nil {
		s.gone = err
	}
	s.room.Broadcast()
}
