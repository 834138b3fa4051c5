package httpserver

import (
	"cmp"
	"net/http"

	"github.com/google/uuid"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// fieldOverhead is what a field counts beside its name and value (RFC 9113, section 6.5.2).
const fieldOverhead = 32

// boundHeaders answers requests over HTTP/2 whose header is larger than the server's
// MaxHeaderBytes. net/http would answer them with a page of HTML, so it gets twice that bound. Only
// a client that ignores SETTINGS_MAX_HEADER_LIST_SIZE goes beyond that, and receives the page.
func boundHeaders(srv *http.Server) {
	bound, inner := srv.MaxHeaderBytes, srv.Handler
	bound = cmp.Or(bound, http.DefaultMaxHeaderBytes)
	srv.MaxHeaderBytes = 2 * bound
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if headerSize(r) > bound {
			id := uuid.NewString()
			w.Header().Set(problem.RequestIDHeader, id)
			problem.Write(w, id, of(http.StatusRequestHeaderFieldsTooLarge, ""))
			return
		}
		inner.ServeHTTP(w, r)
	})
}

// headerSize returns the size of a request's header list in bytes (RFC 9113, section 6.5.2).
func headerSize(r *http.Request) int {
	size := len(r.Method) + len(r.RequestURI) + len(r.Host) + 3*fieldOverhead
	for name, values := range r.Header {
		for _, value := range values {
			size += len(name) + len(value) + fieldOverhead
		}
	}
	return size
}
