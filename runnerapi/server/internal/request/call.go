// Package request is what all parts of the server need to know about a request: its call, its
// caller, its body, and how its errors are sent.
package request

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// KubernetesPrefix is before the paths of the Kubernetes API.
const KubernetesPrefix = "/v1/kubernetes"

// CallsByRoute returns the calls by method and path.
func CallsByRoute() map[string]runnerapi.Call {
	calls := map[string]runnerapi.Call{}
	for _, c := range runnerapi.Calls() {
		calls[c.Method+" "+c.Path] = c
	}
	return calls
}

// CallOf returns the call that a request is routed to. HEAD is its GET; below /v1/kubernetes all
// methods and paths are one.
func CallOf(calls map[string]runnerapi.Call, r *http.Request) runnerapi.Call {
	pattern := chi.RouteContext(r.Context()).RoutePattern()
	if pattern == KubernetesPrefix+"/*" {
		return calls[http.MethodGet+" "+runnerapi.KubernetesPath]
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	return calls[method+" "+pattern]
}

// PathParam returns a part of the path exactly as the call itself is given it: what was sent
// escaped, huma unescapes. If the two differed, a call could be asked about for one namespace and
// carried out in another.
func PathParam(r *http.Request, name string) string {
	v := r.PathValue(name)
	if r.URL.RawPath == "" {
		return v
	}
	if plain, err := url.PathUnescape(v); err == nil {
		return plain
	}
	return v
}

// ApplyTarget returns what a call is about if that is not in the path.
func ApplyTarget(r *http.Request) runnerapi.Key {
	q := r.URL.Query()
	return runnerapi.Key{Namespace: q.Get("namespace"), Name: q.Get("set")}
}
