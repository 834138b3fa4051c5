// Package kubernetes forwards requests to the cluster's own API, as the identity that the cluster
// owner's policy grants.
package kubernetes

import (
	"net/http"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// KindOf returns the value for the metrics label, of which there are only a few.
func KindOf(k runnerapi.KubernetesRequest) string {
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

// Is reports whether a request is for the Kubernetes API, whose errors have the form of
// that API.
func Is(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, request.KubernetesPrefix+"/") }
