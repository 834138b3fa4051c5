package kubernetes

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// readerPause is how long a reader, such as a stopped pager or terminal, may read nothing of an
// answer. Meanwhile the API server, and behind it the kubelet, holds the rest. Over HTTP/2, pings
// detect a dead reader much earlier.
const readerPause = time.Hour

// heldWriter gives the reader readerPause for each part of an answer, and has no limit for the
// whole. When its context ends, the reader has wire.CloseWait to receive the reason.
type heldWriter struct {
	http.ResponseWriter
	rc *http.ResponseController

	mu       sync.Mutex
	ending   bool
	finished bool
	conn     net.Conn // once the connection is upgraded
}

// holdReader returns a writer for a call, and a function that ends it together with the call.
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

// end sets a deadline for the write in progress and for all later writes.
func (w *heldWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ending = true
	switch {
	case w.finished: // net/http has taken the writer back
	case w.conn != nil:
		_ = w.conn.SetDeadline(time.Now().Add(wire.CloseWait))
	default:
		_ = w.rc.SetWriteDeadline(time.Now().Add(wire.CloseWait)) // only a test's recorder cannot
	}
}

// Write implements http.ResponseWriter.
func (w *heldWriter) Write(p []byte) (int, error) {
	w.deadline(time.Now().Add(readerPause))
	defer w.deadline(time.Time{}) // over HTTP/2 a deadline that passes ends even an idle stream
	return w.ResponseWriter.Write(p)
}

// FlushError implements the flush of http.ResponseController.
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

// Hijack implements the hijack of http.ResponseController. Neither SPDY nor WebSockets can close
// one direction only: a peer that has closed one direction has left, and so the other side closes
// as well.
func (w *heldWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.rc.Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.conn = conn; w.ending {
		_ = conn.SetDeadline(time.Now().Add(wire.CloseWait))
	}
	return wholeConn{conn}, rw, nil
}

// errReaderGone ends an upgraded connection of a caller that has disconnected.
var errReaderGone = errors.New("the caller is gone")

// wholeConn is a connection that cannot be half closed.
type wholeConn struct{ net.Conn }

// Read implements net.Conn.
func (c wholeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = errReaderGone
	}
	return n, err
}
