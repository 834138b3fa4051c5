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
func Duplex(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, io.ReadCloser) {
	if r.Body == nil || r.Body == http.NoBody || r.ProtoMajor > 1 {
		return &answer{ResponseWriter: w}, r.Body
	}
	_ = http.NewResponseController(w).EnableFullDuplex()
	body := &endingBody{ReadCloser: r.Body}
	return &answer{ResponseWriter: w, body: body}, body
}

// endingBody remembers whether it was read to its end.
type endingBody struct {
	io.ReadCloser
	ended atomic.Bool
}

// Read implements io.Reader.
func (b *endingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		b.ended.Store(true)
	}
	return n, err
}

type answer struct {
	http.ResponseWriter
	body  *endingBody // nil if it does not matter
	began bool
}

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if status >= http.StatusOK {
		a.begin()
	}
	a.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (a *answer) Write(p []byte) (int, error) {
	a.begin()
	return a.ResponseWriter.Write(p)
}

func (a *answer) begin() {
	if a.began {
		return
	}
	a.began = true
	h := a.Header()
	if a.body != nil && !a.body.ended.Load() {
		h.Set("Connection", "close")
	}
	if _, there := h["Content-Type"]; !there {
		h["Content-Type"] = nil // net/http would guess
	}
}

// Unwrap makes the other abilities available to http.ResponseController.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
