package server

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const nameSelector = "metadata.name"

// hidesAny reports whether rules hide a namespace from a request that names none.
func hidesAny(g runnerapi.KubernetesGrant) bool { return len(g.Hidden) > 0 || g.Across != nil }

// listsNamespaces reports whether a request is about the list of namespaces itself.
func listsNamespaces(k *runnerapi.KubernetesRequest) bool {
	return k.Group == "" && k.Resource == "namespaces"
}

// across refuses a request that reaches what rules about namespaces deny and that cannot be
// restricted: through a node's kubelet, or over all namespaces if a pattern denies some.
func (s *server) across(ctx context.Context, k *runnerapi.KubernetesRequest) error {
	switch {
	case !hidesAny(k.Grant):
		return nil
	case k.ReachesNode():
		return runnerapi.PolicyDenied("ask about one namespace", "a node's kubelet leads to pods of all namespaces, and a rule of the customer's policy denies one")
	case k.Grant.Across == nil || !spansNamespaces(k):
		return nil
	case listsNamespaces(k):
		return k.Grant.Across
	}
	namespaced, err := s.namespaced(ctx, k)
	if err != nil || !namespaced {
		return err
	}
	return k.Grant.Across
}

func (s *server) namespaced(ctx context.Context, k *runnerapi.KubernetesRequest) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	version := k.Version
	if version == "" && k.Group == "" { // a review may omit it
		version = "v1"
	}
	return s.Kubernetes.Namespaced(ctx, k.Group, version, k.Resource)
}

// hideNamespaces leaves out of a list or watch of all namespaces those that the rules of the
// policy deny, and the agent's own where the policy does not name it.
func (s *server) hideNamespaces(r *http.Request, k *runnerapi.KubernetesRequest) (*http.Request, error) {
	if err := s.across(r.Context(), k); err != nil || !spansNamespaces(k) {
		return r, err
	}
	field, hidden := namespaceSelector, k.Grant.Hidden
	switch {
	case listsNamespaces(k):
		field = nameSelector
	case !k.Grant.AgentNamespace:
		hidden = append([]string{k.AgentNamespace}, hidden...)
	}
	if len(hidden) == 0 {
		return r, nil
	}
	if field == namespaceSelector {
		if namespaced, err := s.namespaced(r.Context(), k); err != nil || !namespaced {
			return r, err
		}
	}
	query := r.URL.Query()
	all := make([]string, 0, len(hidden)+1)
	if given := query.Get(fieldSelector); given != "" {
		all = append(all, given)
	}
	for _, name := range hidden {
		all = append(all, field+"!="+fields.EscapeValue(name))
	}
	query.Set(fieldSelector, strings.Join(all, ","))
	r = r.Clone(r.Context())
	r.URL.RawQuery = query.Encode()
	return r, nil
}
