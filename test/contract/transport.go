package contract

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxRecorded bounds what is kept of an answer. Of a longer one the beginning is checked.
const maxRecorded = 4 << 20

// ViolationError is an answer that is not in the document.
type ViolationError struct {
	Call string // method and URL
	Err  error
}

func (e *ViolationError) Error() string {
	return "the answer to " + e.Call + " breaks the API's document: " + e.Err.Error()
}
func (e *ViolationError) Unwrap() error { return e.Err }

// Around returns a transport that checks each answer below /v1 against the document, once its body
// has been read or is closed. It reports a violation, and ends the reading of that body with the
// same error.
func (d *Document) Around(next http.RoundTripper, report func(error)) http.RoundTripper {
	return &transport{RoundTripper: next, document: d, report: report}
}

type transport struct {
	http.RoundTripper
	document *Document
	report   func(error)
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil || !strings.HasPrefix(r.URL.Path, "/v1/") || resp.StatusCode == http.StatusSwitchingProtocols {
		return resp, err
	}
	resp.Body = &recorder{ReadCloser: resp.Body, transport: t, call: r.Method + " " + r.URL.String(), answer: Answer{
		Method: r.Method, Path: r.URL.EscapedPath(), Status: resp.StatusCode, Header: resp.Header,
		DryRun: r.URL.Query().Get("dryRun") == "true",
	}}
	return resp, nil
}

// recorder keeps what is read of a body.
type recorder struct {
	io.ReadCloser
	transport *transport
	call      string
	answer    Answer
	read      bytes.Buffer
	checked   bool
}

// Read implements io.Reader.
func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if !r.answer.Cut {
		kept := min(n, maxRecorded-r.read.Len())
		_, _ = r.read.Write(p[:kept]) // a Buffer takes all
		r.answer.Cut = kept < n
	}
	if err == io.EOF {
		if violation := r.check(); violation != nil {
			return n, violation
		}
	}
	return n, err
}

// Close implements io.Closer.
func (r *recorder) Close() error {
	if !r.checked {
		r.answer.Cut = true
		_ = r.check() // it is reported
	}
	return r.ReadCloser.Close()
}

func (r *recorder) check() error {
	if r.checked {
		return nil
	}
	r.checked, r.answer.Body = true, r.read.Bytes()
	err := r.transport.document.Check(r.answer)
	if err == nil {
		return nil
	}
	violation := &ViolationError{Call: r.call, Err: fmt.Errorf("status %d: %w", r.answer.Status, err)}
	r.transport.report(violation)
	return violation
}
