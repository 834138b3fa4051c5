package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// kindOf returns the value for the metrics label, of which there are only a few.
func kindOf(k runnerapi.KubernetesRequest) string {
	switch {
	case k.Discovery:
		return "discovery"
	case k.Connects():
		return "connect"
	case slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}, k.Verb):
		return k.Verb
	}
	return runnerapi.OtherCall
}

// isKubernetes reports whether a request is for the Kubernetes API, whose errors have the form of
// that API.
func isKubernetes(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, kubernetesPrefix+"/") }
