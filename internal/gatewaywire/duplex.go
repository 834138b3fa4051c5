package gatewaywire

import (
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// Duplex lets both ends of a request speak at a time, as gRPC's do. The writer and the body are to
// be used in place of the request's own. A connection whose answer begins before the body has ended
// takes no further request. net/http would read that while it still waits for the end of this one,
// and panic outside of any handler (https://github.com/golang/go/issues/68560).
func Duplex(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, io.ReadCloser) {
	if r.Body == nil || r.Body == http.NoBody || r.ProtoMajor > 1 {
		return w, r.Body
	}
	_ = http.NewResponseController(w).EnableFullDuplex()
	body := &endingBody{ReadCloser: r.Body}
	return &duplexWriter{ResponseWriter: w, body: body}, body
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

type duplexWriter struct {
	http.ResponseWriter
	body  *endingBody
	began bool
}

// WriteHeader implements http.ResponseWriter.
func (w *duplexWriter) WriteHeader(status int) {
	if status >= http.StatusOK {
		w.begin()
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements io.Writer.
func (w *duplexWriter) Write(p []byte) (int, error) {
	w.begin()
	return w.ResponseWriter.Write(p)
}

func (w *duplexWriter) begin() {
	if !w.began && !w.body.ended.Load() {
		w.Header().Set("Connection", "close")
	}
	w.began = true
}

// Unwrap makes the other abilities available to http.ResponseController.
func (w *duplexWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
