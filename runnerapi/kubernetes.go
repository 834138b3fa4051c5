package runnerapi

import (
	"slices"
)

// KubernetesIdentity is the identity with which a Runner uses the Kubernetes API.
type KubernetesIdentity struct {
	User   string
	Groups []string
}

// Equal reports whether both identities are the same.
func (k KubernetesIdentity) Equal(other KubernetesIdentity) bool {
	return k.User == other.User && slices.Equal(k.Groups, other.Groups)
}

// KubernetesGrant describes how the policy lets a request to the Kubernetes API be made.
type KubernetesGrant struct {
	As KubernetesIdentity
	// AgentNamespace reports whether the rule names the namespace of the agent.
	AgentNamespace bool
	// ReadOnly reports whether the rule allows only reads.
	ReadOnly bool
	// Hidden are the namespaces that a request over all namespaces must not reach.
	Hidden []string
	// AllNamespacesDenied is why a request may not cover all namespaces; nil if it may.
	AllNamespacesDenied error
	// Streams is how many streams the Runner may have open; 0 stands for the agent's setting.
	Streams int
}

// KubernetesRequest is a request to the Kubernetes API, as far as its method and URL describe it.
// They are read as the API server itself reads them (k8s.io/apiserver's RequestInfo).
type KubernetesRequest struct {
	// Verb is the RBAC verb; for a non-resource path, the method in lower case.
	Verb string
	// Path is the cleaned path at the API server.
	Path string
	// Group, Version, Resource, Subresource, Namespace and Name are empty if the path has none.
	Group, Version, Resource, Subresource, Namespace, Name string
	// Discovery reports whether the request only asks which resources exist, or about its sender.
	Discovery bool
	// Upgrade is the protocol that the connection is upgraded to, or empty.
	Upgrade string
	// Follow reports whether the answer continues until either side ends it.
	Follow bool
	// DryRun reports whether the API server promises to persist nothing.
	DryRun bool
	// AgentNamespace is the namespace of the agent. InAgentNamespace reports whether the request
	// reaches objects in it.
	AgentNamespace   string
	InAgentNamespace bool
	// Selected is the one namespace that a request over all namespaces selects.
	Selected string
	// Impersonate is the identity that the headers Impersonate-User and -Group ask for.
	Impersonate KubernetesIdentity
	// Grant is what the policy granted when the request began. The request ends when the policy
	// revokes a part of it.
	Grant KubernetesGrant
}

// ConnectSubresources lists the subresources that lead into a pod, or past the API server. Read
// access to them is as good as write access.
var ConnectSubresources = []string{"exec", "attach", "portforward", "proxy"}

// Connects reports whether the request leads into a pod, or past the API server.
func (k KubernetesRequest) Connects() bool {
	return slices.Contains(ConnectSubresources, k.Subresource)
}

// RunsCommands reports whether the request leads to a process in a container. A node's kubelet also
// does.
func (k KubernetesRequest) RunsCommands() bool {
	return k.Subresource == "exec" || k.Subresource == "attach" || k.ReachesNode()
}

// Reads reports whether the request changes nothing, by what the API server promises.
func (k KubernetesRequest) Reads() bool {
	if k.Connects() || k.Upgrade != "" {
		return false
	}
	switch k.Verb {
	case "get", "list", "watch", "head":
		return true
	}
	return k.DryRun || k.AsksOfItself()
}

// AsksOfItself reports whether the request is a review about its sender, which has a body.
func (k KubernetesRequest) AsksOfItself() bool {
	if k.Verb != "create" || k.Subresource != "" {
		return false
	}
	return k.Group == "authorization.k8s.io" && (k.Resource == AccessReviews || k.Resource == RulesReviews) ||
		k.Group == "authentication.k8s.io" && k.Resource == SubjectReviews
}

// Long reports whether the request may go on for as long as its caller wants.
func (k KubernetesRequest) Long() bool { return k.Follow || k.Upgrade != "" || k.Connects() }

// ReachesNode reports whether a request goes through the API server to a node's kubelet.
func (k *KubernetesRequest) ReachesNode() bool {
	return k.Group == "" && k.Resource == "nodes" && (k.Subresource == "proxy" || k.Verb == "proxy")
}

// The reviews that a caller requests about itself. kubectl auth can-i and whoami send them.
const (
	AccessReviews  = "selfsubjectaccessreviews"
	RulesReviews   = "selfsubjectrulesreviews"
	SubjectReviews = "selfsubjectreviews"
)

// KubernetesServerPrefix is the prefix of the server name under which an agent serves only the
// Kubernetes API, without a prefix in paths: kubernetes.AGENT_ID.AGENTS_DOMAIN. Some clients do not
// support path prefixes.
const KubernetesServerPrefix = "kubernetes."

// KubernetesServerName returns that name for the agent's other name.
func KubernetesServerName(serverName string) string { return KubernetesServerPrefix + serverName }
