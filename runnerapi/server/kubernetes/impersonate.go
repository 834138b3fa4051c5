package kubernetes

import (
	"net/http"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The headers by which Kubernetes' clients ask for impersonation, such as kubectl --as.
const (
	impersonatePrefix = "Impersonate-"
	impersonateUser   = "Impersonate-User"
	impersonateGroup  = "Impersonate-Group"
)

// impersonates returns whom a request asks to impersonate. The policy contains only names of users
// and groups, so a request that asks for more is refused. If a part were dropped, the API server
// would carry out another request than the one that was sent.
func impersonates(h http.Header) (runnerapi.KubernetesIdentity, error) {
	who := runnerapi.KubernetesIdentity{}
	for name, values := range h {
		if !strings.HasPrefix(name, impersonatePrefix) {
			continue
		}
		switch {
		case name == impersonateUser && len(values) == 1 && values[0] != "":
			who.User = values[0]
		case name == impersonateGroup && !slices.Contains(values, ""):
			who.Groups = slices.Clone(values)
		default:
			return runnerapi.KubernetesIdentity{}, runnerapi.PolicyDenied("ask for one user with --as, and for groups with --as-group",
				"no policy allows what the header %s asks for", printable.Clip(name))
		}
	}
	if who.User == "" && len(who.Groups) > 0 {
		return runnerapi.KubernetesIdentity{}, runnerapi.PolicyDenied("add --as USER", "groups can be impersonated together with a user alone")
	}
	return who, nil
}
