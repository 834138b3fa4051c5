package runnerapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// readerPause is how long a reader may take nothing of an answer, such as a pager or a terminal
// that is stopped. Meanwhile the API server, and behind it the kubelet, waits with the rest.
// Over HTTP/2 a reader that is gone is found by its pings, and does not last that long.
const readerPause = time.Hour

// heldWriter gives each part of an answer readerPause to be taken in, and the whole no limit.
// When its context ends, the reader has closeWait to take in why.
type heldWriter struct {
	http.ResponseWriter
	rc *http.ResponseController

	mu       sync.Mutex
	ending   bool
	finished bool
	conn     net.Conn // once the connection is upgraded
}

// holdReader returns a writer for a call, and what ends it together with the call.
func holdReader(ctx context.Context, w http.ResponseWriter) (held *heldWriter, finish func()) {
	held = &heldWriter{ResponseWriter: w, rc: http.NewResponseController(w)}
	stop := context.AfterFunc(ctx, held.end)
	return held, func() {
		stop()
		held.mu.Lock()
		defer held.mu.Unlock()
		held.finished = true
	}
}

// end bounds what is being written, and what is written from now on.
func (w *heldWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	switch {
	case w.finished: // net/http has taken the writer back
	case w.conn != nil:
		_ = w.conn.SetDeadline(time.Now().Add(closeWait))
	default:
		_ = w.rc.SetWriteDeadline(time.Now().Add(closeWait)) // only a test's recorder cannot
	}
}

// Write implements http.ResponseWriter.
func (w *heldWriter) Write(p []byte) (int, error) {
	w.deadline(time.Now().Add(readerPause))
	defer w.deadline(time.Time{}) // over HTTP/2 one that passes ends the stream, written to or not
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *heldWriter) FlushError() error {
	w.deadline(time.Now().Add(readerPause))
	defer w.deadline(time.Time{})
	return w.rc.Flush()
}

func (w *heldWriter) deadline(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ending {
		_ = w.rc.SetWriteDeadline(at)
	}
}

// Hijack is for http.ResponseController. Neither SPDY nor WebSockets end in one direction
// alone: whoever has ended one has gone, and so has the other side.
func (w *heldWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn = conn; w.ending {
		_ = conn.SetDeadline(time.Now().Add(closeWait))
	}
	return wholeConn{conn}, rw, nil
}

// wholeConn is a connection that has no half.
type wholeConn struct{ net.Conn }

// Read implements net.Conn.
func (c wholeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = errCallerGone
	}
	return n, err
}
