package httpserver

import (
	"bytes"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	lengthField   = "content-length:"
	encodingField = "transfer-encoding:"
)

// framing notes the fields that say where bodies end, in what a connection has read. net/http
// removes what it does not use of them before the handler. A body that has such a line counts too,
// which does no harm: at worst the connection takes no further request.
type framing struct {
	line   []byte // begin of the line that is being read
	header bool   // the first request's header is over
	// length is that there was a Content-Length, and encoding that the first request has a
	// Transfer-Encoding.
	length, encoding atomic.Bool
}

// note looks at what was read. One goroutine reads at a time.
func (f *framing) note(p []byte) {
	for len(p) > 0 && (!f.header || !f.length.Load()) {
		part, rest, ended := bytes.Cut(p, []byte("\n"))
		f.line = append(f.line, part[:min(len(part), len(encodingField)-len(f.line))]...)
		p = rest
		if !ended {
			return
		}
		line := strings.ToLower(string(f.line))
		f.line = f.line[:0]
		switch {
		case strings.HasPrefix(line, lengthField):
			f.length.Store(true)
		case strings.HasPrefix(line, encodingField) && !f.header:
			f.encoding.Store(true)
		case line == "\r" || line == "":
			f.header = true
		}
	}
}

// refuses answers a request of HTTP/1.0 that has a Transfer-Encoding. The connection ends after one
// that may have both fields (RFC 9112, section 6.1).
func (f *framing) refuses(w http.ResponseWriter, r *http.Request) bool {
	switch {
	case !r.ProtoAtLeast(1, 1) && f.encoding.Load():
		w.Header().Set("Connection", "close")
		e := problem.New(http.StatusBadRequest, problem.BadRequest, "send a Content-Length, or HTTP/1.1", "HTTP/1.0 has no Transfer-Encoding").
			WithField("header.Transfer-Encoding")
		id := uuid.NewString()
		w.Header().Set(problem.RequestIDHeader, id)
		problem.Write(w, id, e)
		return true
	case len(r.TransferEncoding) > 0 && f.length.Load():
		w.Header().Set("Connection", "close")
	}
	return false
}
