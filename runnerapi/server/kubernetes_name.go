package server

import (
	"net/http"
	"strings"
)

// KubernetesServerPrefix is the prefix of the server name under which an agent serves only the
// Kubernetes API, without a prefix in paths: kubernetes.AGENT_ID.AGENTS_DOMAIN. Some clients do not
// support path prefixes.
const KubernetesServerPrefix = "kubernetes."

// KubernetesServerName returns that name for the agent's other name.
func KubernetesServerName(serverName string) string { return KubernetesServerPrefix + serverName }

// byName gives requests under that name the prefix that the routes have.
func byName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || !strings.HasPrefix(strings.ToLower(r.TLS.ServerName), KubernetesServerPrefix) {
			next.ServeHTTP(w, r)
			return
		}
		r = r.Clone(r.Context())
		r.URL.Path = kubernetesPrefix + "/" + strings.TrimPrefix(r.URL.Path, "/")
		if r.URL.RawPath != "" {
			r.URL.RawPath = kubernetesPrefix + "/" + strings.TrimPrefix(r.URL.RawPath, "/")
		}
		next.ServeHTTP(w, r)
	})
}
