package kubernetes

import (
	"net/http"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// ByName gives requests under that name the prefix that the routes have.
func ByName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || !strings.HasPrefix(strings.ToLower(r.TLS.ServerName), runnerapi.KubernetesServerPrefix) {
			next.ServeHTTP(w, r)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path = request.KubernetesPrefix + "/" + strings.TrimPrefix(r.URL.Path, "/")
		if r.URL.RawPath != "" {
			r.URL.RawPath = request.KubernetesPrefix + "/" + strings.TrimPrefix(r.URL.RawPath, "/")
		}
		next.ServeHTTP(w, r)
	})
}
