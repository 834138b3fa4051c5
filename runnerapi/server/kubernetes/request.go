package kubernetes

import (
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// maxKubernetesPath bounds a path, in bytes: names have at most 253 each.
const maxKubernetesPath = 4 << 10

// Read returns what a request to the Kubernetes API is about. It refuses a path with two
// spellings: the policy could be asked about one and the API server could carry out the other.
func Read(r *http.Request) (runnerapi.KubernetesRequest, error) {
	p := strings.TrimPrefix(r.URL.Path, request.KubernetesPrefix)
	plain := strings.TrimSuffix(p, "/")
	unclean := plain != "" && path.Clean(plain) != plain || strings.Contains(p, "//") || strings.ContainsAny(p, "\\\x00")
	if !Is(r) || r.URL.RawPath != "" || len(p) > maxKubernetesPath || unclean {
		return runnerapi.KubernetesRequest{}, problem.Errorf(problem.BadRequest, `send a path without "//", "." and ".." as its parts, and without escaped slashes`,
			"the path of the Kubernetes API is not written in its one plain way")
	}
	upgrade, err := upgradeOf(r)
	if err != nil {
		return runnerapi.KubernetesRequest{}, err
	}
	k := runnerapi.KubernetesRequest{Verb: strings.ToLower(r.Method), Path: p, Upgrade: upgrade}
	addResource(&k, strings.Split(strings.TrimPrefix(plain, "/"), "/"), r.Method, r.URL.Query())
	return k, nil
}

// upgradeOf returns the protocol that a connection is upgraded to. kubectl knows these two.
func upgradeOf(r *http.Request) (string, error) {
	asked := r.Header.Values("Upgrade")
	if len(asked) == 0 {
		return "", nil
	}
	if protocol := strings.ToLower(asked[0]); len(asked) == 1 && (protocol == "websocket" || protocol == "spdy/3.1") {
		return protocol, nil
	}
	return "", problem.Errorf(problem.BadRequest, "ask for websocket or SPDY/3.1", "the connection cannot become what the header Upgrade asks for")
}

// addResource parses a path as k8s.io/apiserver does (RequestInfoFactory.NewRequestInfo). That
// package is not imported because it brings a server's whole machinery.
func addResource(k *runnerapi.KubernetesRequest, parts []string, method string, query url.Values) {
	groups := parts[0] == "apis"
	least := 3 // api/VERSION/RESOURCE
	if groups {
		least = 4 // apis/GROUP/VERSION/RESOURCE
	}
	if parts[0] != "api" && !groups || len(parts) < least {
		k.Discovery = method == http.MethodGet && discovers(parts)
		return
	}
	if groups {
		k.Group = parts[1]
	}
	k.Version = parts[least-2]
	rest := parts[least-1:]
	k.Verb = verbs[method]
	legacy := rest[0] == "watch" || rest[0] == "proxy" // /api/v1/watch/…, which the API server still has
	if legacy && len(rest) > 1 {
		k.Verb, k.Follow = rest[0], true
		rest = rest[1:]
	}
	if rest[0] == "namespaces" && len(rest) > 1 {
		k.Namespace = rest[1]
		if len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
			rest = rest[2:]
		}
	}
	k.Resource = rest[0]
	if len(rest) > 1 {
		k.Name = rest[1]
	}
	if len(rest) > 2 {
		k.Subresource = rest[2]
	}
	if !legacy {
		addCollection(k, query)
	}
	k.Discovery = k.AsksOfItself()
	k.Follow = k.Follow || k.Subresource == "log" && isTrue(query, "follow")
}

// addCollection sets the verbs of collections, and of watches, which may also be of one object.
func addCollection(k *runnerapi.KubernetesRequest, query url.Values) {
	switch {
	case k.Verb == "get" && isTrue(query, "watch") && k.Subresource == "":
		k.Verb, k.Follow = "watch", true
	case k.Verb == "get" && k.Name == "":
		k.Verb = "list"
	case k.Verb == "delete" && k.Name == "":
		k.Verb = "deletecollection"
	}
}

// verbs are the RBAC verbs of the HTTP methods.
var verbs = map[string]string{
	http.MethodGet: "get", http.MethodHead: "get", http.MethodPost: "create",
	http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
}

// isTrue parses a switch of a query as the API server does: all values but these are true.
func isTrue(query url.Values, name string) bool {
	values, there := query[name]
	return there && !slices.Contains([]string{"false", "0"}, strings.ToLower(values[0]))
}

// discovers reports whether a non-resource path lists which resources exist. Any authenticated user
// may read those paths and the API server's health (ClusterRoles system:discovery and
// system:public-info-viewer).
func discovers(parts []string) bool {
	switch parts[0] {
	case "api", "apis", "openapi":
		return true
	case "version", "healthz", "livez", "readyz":
		return len(parts) == 1
	}
	return false
}
