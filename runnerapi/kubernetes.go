package runnerapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// KubernetesCall is the ID of the call that passes requests on to the Kubernetes API. A
// policy that names it says as whom.
const KubernetesCall = "kubernetes-api"

// kubernetesRoute is its path in the table of calls. Any number of parts stand for path.
const kubernetesRoute = "/v1/kubernetes/{path}"

// KubernetesAPI is what the server needs for the Kubernetes API.
type KubernetesAPI interface {
	// APIServer answers where the cluster's API server is, and a transport that
	// speaks HTTP/1.1 to it with the agent's own credentials.
	APIServer() (*url.URL, http.RoundTripper, error)
	// Namespaced reports whether a resource is in namespaces. It reports true for a
	// resource that the API server does not list.
	Namespaced(ctx context.Context, group, version, resource string) (bool, error)
	// OwnNamespace is the agent's own, with its identity and its owner's policy in it.
	OwnNamespace() string
}

// KubernetesIdentity is as whom a Runner uses the Kubernetes API.
type KubernetesIdentity struct {
	User   string
	Groups []string
}

// Equal says whether both are the same.
func (k KubernetesIdentity) Equal(other KubernetesIdentity) bool {
	return k.User == other.User && slices.Equal(k.Groups, other.Groups)
}

// KubernetesGrant is how the policy has a request to the Kubernetes API made.
type KubernetesGrant struct {
	As KubernetesIdentity
	// AgentNamespace is true where the rule names the namespace of the agent.
	AgentNamespace bool
	// ReadOnly is true where the rule allows reading alone.
	ReadOnly bool
	// Hidden are namespaces that a request over all of them must not reach.
	Hidden []string
	// Across is why a request may not be over all namespaces; nil where it may.
	Across error
	// Streams is the most streams that the Runner may have open; 0 is the agent's setting.
	Streams int
}

// KubernetesRequest is a request to the Kubernetes API, as far as its method and its URL
// tell. It is told as the API server itself tells it (k8s.io/apiserver's RequestInfo).
type KubernetesRequest struct {
	// Verb is that of RBAC; for what is no resource, the method in small letters.
	Verb string
	// Path is that of the API server, cleaned.
	Path string
	// Group, Version, Resource, Subresource, Namespace and Name are empty where there are none.
	Group, Version, Resource, Subresource, Namespace, Name string
	// Discovery says that it asks which resources there are, or about who asks, and nothing else.
	Discovery bool
	// Upgrade is the protocol that the connection is to become, or empty.
	Upgrade string
	// Follow says that the answer goes on until somebody ends it.
	Follow bool
	// DryRun is true where the API server promises to persist nothing.
	DryRun bool
	// AgentNamespace is the namespace of the agent; InAgentNamespace is true where the
	// request reaches what is in it.
	AgentNamespace   string
	InAgentNamespace bool
	// Selected is the one namespace that a request over all of them selects.
	Selected string
	// Impersonate is whom the headers Impersonate-User and -Group ask for.
	Impersonate KubernetesIdentity
	// Grant is what the policy granted when the request began. The request ends when the
	// policy takes back a part of it.
	Grant KubernetesGrant
}

// connects are the subresources that lead into a pod, or past the API server: whoever may
// read them may write.
var connects = []string{"exec", "attach", "portforward", "proxy"}

// Connects says whether it leads into a pod, or past the API server.
func (k KubernetesRequest) Connects() bool { return slices.Contains(connects, k.Subresource) }

// Reads says whether it changes nothing, by what the API server promises.
func (k KubernetesRequest) Reads() bool {
	if k.Connects() || k.Upgrade != "" {
		return false
	}
	switch k.Verb {
	case "get", "list", "watch", "head":
		return true
	}
	return k.DryRun || k.asksOfItself()
}

// asksOfItself says whether it is a question about who asks, which has a body.
func (k KubernetesRequest) asksOfItself() bool {
	if k.Verb != "create" || k.Subresource != "" {
		return false
	}
	return k.Group == "authorization.k8s.io" && (k.Resource == accessReviews || k.Resource == rulesReviews) ||
		k.Group == "authentication.k8s.io" && k.Resource == subjectReviews
}

// Long says whether it may go on for as long as its caller likes.
func (k KubernetesRequest) Long() bool { return k.Follow || k.Upgrade != "" || k.Connects() }

// kind is what metrics tell of it: there are only a few.
func (k KubernetesRequest) kind() string {
	switch {
	case k.Discovery:
		return "discovery"
	case k.Connects():
		return "connect"
	case slices.Contains([]string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}, k.Verb):
		return k.Verb
	}
	return OtherCall
}

// isKubernetes says whether a request is for the Kubernetes API: its errors are in the
// words of that.
func isKubernetes(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, kubernetesPrefix+"/") }
