package kubernetes

import (
	"net/url"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	fieldSelector     = "fieldSelector"
	namespaceSelector = "metadata.namespace"
)

// guardAgentNamespace finds out whether a request reaches into the agent's namespace: by its
// path, by a field selector over all namespaces, or past the API server by a node's kubelet,
// which runs commands in any pod.
func guardAgentNamespace(k *runnerapi.KubernetesRequest, own string, query url.Values) error {
	selected, err := selectsNamespace(query)
	if err != nil {
		return err
	}
	k.AgentNamespace = own
	if spansNamespaces(k) && !listsNamespaces(k) {
		k.Selected = selected
	}
	k.InAgentNamespace = k.Namespace == own || k.ReachesNode() || spansNamespaces(k) && selected == own
	return nil
}

// spansNamespaces reports whether a request is about objects that may be in all namespaces. A name
// does not change that: a watch, by its older path, is then of all objects of that name.
func spansNamespaces(k *runnerapi.KubernetesRequest) bool {
	switch k.Verb {
	case "list", "watch", "deletecollection":
		return k.Namespace == "" && k.Resource != ""
	}
	return false
}

// selectsNamespace returns the namespace that a field selector is about, if there is one.
func selectsNamespace(query url.Values) (string, error) {
	given := query[fieldSelector]
	if len(given) == 0 {
		return "", nil
	}
	selector, err := fields.ParseSelector(given[0])
	if len(given) > 1 || err != nil {
		return "", problem.Errorf(problem.BadRequest, "send one field selector such as status.phase=Running",
			"the field selector cannot be understood").WithField("query." + fieldSelector)
	}
	namespace, _ := selector.RequiresExactMatch(namespaceSelector)
	return namespace, nil
}
