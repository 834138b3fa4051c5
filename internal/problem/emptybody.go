package problem

import (
	"errors"
	"io"
	"net/http"
	"os"
)

// RequestTimeout is the code of a body that did not arrive in time: 408.
const RequestTimeout Code = "request_timeout"

// NoBody refuses a request with a body, for calls that take none: the body would go unread, so its
// sender made a mistake.
func NoBody(w http.ResponseWriter, r *http.Request) error {
	err := noBody(w, r)
	if err != nil && r.ProtoMajor == 1 { // or net/http reads the body before it sends the answer
		w.Header().Set("Connection", "close")
	}
	return err
}

func noBody(w http.ResponseWriter, r *http.Request) error {
	given := Errorf(BadRequest, "send no body", "this call accepts no body").WithField("body")
	switch {
	case r.ContentLength == 0:
		return nil
	case r.ContentLength > 0:
		return given
	}
	n, err := http.MaxBytesReader(w, r.Body, 0).Read(make([]byte, 1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return New(http.StatusRequestTimeout, RequestTimeout, "send no body", "a body was announced, and did not arrive in time")
	case n == 0 && (err == nil || errors.Is(err, io.EOF)):
		return nil
	}
	return given
}
