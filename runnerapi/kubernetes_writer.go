package runnerapi

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// pacedWriter gives each part of an answer a time to be taken in, and the whole none: a
// watch may be silent for hours, and then what comes has to be taken.
type pacedWriter struct {
	http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
}

// Write implements http.ResponseWriter.
func (w *pacedWriter) Write(p []byte) (int, error) {
	defer w.pace()()
	return w.ResponseWriter.Write(p)
}

// FlushError is for http.ResponseController.
func (w *pacedWriter) FlushError() error {
	defer w.pace()()
	return w.rc.Flush()
}

// pace sets a deadline, and takes it back: over HTTP/2 one that passes ends the stream,
// whether anything is written then or not.
func (w *pacedWriter) pace() (after func()) {
	_ = w.rc.SetWriteDeadline(time.Now().Add(w.stall)) // only a test's recorder cannot
	return func() { _ = w.rc.SetWriteDeadline(time.Time{}) }
}

// Hijack is for http.ResponseController. Neither SPDY nor WebSockets end in one direction
// alone: whoever has ended one has gone, and so has the other side.
func (w *pacedWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
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
