package kubernetes

import (
	"context"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const nameSelector = "metadata.name"

// hidesAny reports whether rules hide a namespace from a request that names none.
func hidesAny(g runnerapi.KubernetesGrant) bool {
	return len(g.Hidden) > 0 || g.AllNamespacesDenied != nil
}

// listsNamespaces reports whether a request is about the list of namespaces itself.
func listsNamespaces(k *runnerapi.KubernetesRequest) bool {
	return k.Group == "" && k.Resource == "namespaces"
}

// guardAllNamespaces refuses a request that reaches what rules about namespaces deny and that
// cannot be restricted: through a node's kubelet, or over all namespaces if a pattern denies some.
func (a *API) guardAllNamespaces(ctx context.Context, k *runnerapi.KubernetesRequest) error {
	switch {
	case !hidesAny(k.Grant):
		return nil
	case k.ReachesNode():
		return runnerapi.PolicyDenied("ask about one namespace", "a node's kubelet leads to pods of all namespaces, and a rule of the customer's policy denies one")
	case k.Grant.AllNamespacesDenied == nil || !spansNamespaces(k):
		return nil
	case listsNamespaces(k):
		return k.Grant.AllNamespacesDenied
	}
	namespaced, err := a.namespaced(ctx, k)
	if err != nil || !namespaced {
		return err
	}
	return k.Grant.AllNamespacesDenied
}

func (a *API) namespaced(ctx context.Context, k *runnerapi.KubernetesRequest) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, scopeTimeout)
	defer cancel()
	version := k.Version
	if version == "" && k.Group == "" { // a review may omit it
		version = "v1"
	}
	return a.Cluster.Namespaced(ctx, k.Group, version, k.Resource)
}

// hideNamespaces leaves out of a list or watch of all namespaces those that the rules of the
// policy deny, and the agent's own where the policy does not name it.
func (a *API) hideNamespaces(r *http.Request, k *runnerapi.KubernetesRequest) (*http.Request, error) {
	if err := a.guardAllNamespaces(r.Context(), k); err != nil {
		return nil, err
	}
	if !spansNamespaces(k) {
		return r, nil
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
		switch namespaced, err := a.namespaced(r.Context(), k); {
		case err != nil:
			return nil, err
		case !namespaced:
			return r, nil
		}
	}
	query := r.URL.Query()
	all := make([]string, 0, len(hidden)+2)
	if given := query.Get(fieldSelector); given != "" {
		all = append(all, given)
	}
	if k.Name != "" { // of the path: the API server refuses another selector beside it
		all = append(all, nameSelector+"="+fields.EscapeValue(k.Name))
	}
	for _, name := range hidden {
		all = append(all, field+"!="+fields.EscapeValue(name))
	}
	query.Set(fieldSelector, strings.Join(all, ","))
	r = r.Clone(r.Context())
	r.URL.RawQuery = query.Encode()
	return r, nil
}
