package gatewaywire

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Duplex returns a writer and a body to use in place of a request's own. They let both ends of a
// request speak at a time, and add nothing to an answer that its sender has left out.
//
// An HTTP/1 connection whose answer begins before the body has ended takes no further request.
// net/http would read that while it still waits for the end of this one, and panic outside of any
// handler (https://github.com/golang/go/issues/68560).
func Duplex(w http.ResponseWriter, r *http.Request) (*Answer, io.ReadCloser) {
	if r.Body == nil || r.Body == http.NoBody || r.ProtoMajor > 1 {
		return &Answer{ResponseWriter: w}, r.Body
	}
	_ = http.NewResponseController(w).EnableFullDuplex()
	body := &endingBody{ReadCloser: r.Body}
	return &Answer{ResponseWriter: w, body: body}, body
}

// endingBody remembers whether it was read to its end, and how much was read.
type endingBody struct {
	io.ReadCloser
	ended atomic.Bool
	read  atomic.Int64
}

// Read implements io.Reader.
func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read.Add(int64(n))
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

// Answer is the writer of an answer. It knows what became of its request.
type Answer struct {
	http.ResponseWriter
	body   *endingBody // nil if it does not matter
	began  bool
	status int
	sent   int64
}

// Status returns the status of the answer; zero if it has not begun, or is a connection that was
// upgraded.
func (a *Answer) Status() int { return a.status }

// Sent returns how many bytes of the answer's body were written.
func (a *Answer) Sent() int64 { return a.sent }

// Received returns how many bytes of an HTTP/1 request's body were read.
func (a *Answer) Received() int64 {
	if a.body == nil {
		return 0
	}
	return a.body.read.Load()
}

// WriteHeader implements http.ResponseWriter.
func (a *Answer) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.begin(status)
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (a *Answer) Write(p []byte) (int, error) {
	a.begin(http.StatusOK)
	n, err := a.ResponseWriter.Write(p)
	a.sent += int64(n)
	return n, err
}

func (a *Answer) begin(status int) {
	if a.began {
		return
	}
	a.began, a.status = true, status
	h := a.Header()
	if a.body != nil && !a.body.ended.Load() {
		h.Set("Connection", "close")
	}
	if _, there := h["Content-Type"]; !there {
		h["Content-Type"] = nil // net/http would guess
	}
}

// Unwrap makes the other abilities available to http.ResponseController.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
