package httpserver

import (
	"net/http"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// methods are those that our APIs have; HEAD comes with GET.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPut, http.MethodPost, http.MethodPatch, http.MethodDelete}

// NoMethod returns a handler for requests that match no call. It lists the methods that the path
// does have (RFC 9110, section 15.5.6), and serves notFound for a path that has none. Methods are
// case-sensitive (section 9.1).
func NoMethod(has func(r *http.Request, method string) bool, notFound http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, m := range methods {
			if has(r, m) {
				allowed = append(allowed, m)
			}
		}
		if allowed == nil {
			notFound(w, r)
			return
		}
		allow := strings.Join(allowed, ", ")
		w.Header().Set("Allow", allow)
		problem.Write(w, problem.RequestID(r.Context()), problem.Errorf(problem.NotAllowed,
			"use "+allow, "%s is not a method of %s", printable.Clip(r.Method), printable.Clip(r.URL.Path)))
	}
}
