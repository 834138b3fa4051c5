package manifests

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Kinds that are treated apart, as a policy names them.
const (
	kindCRD                = "CustomResourceDefinition.apiextensions.k8s.io"
	kindNamespace          = "Namespace"
	kindSecret             = "Secret"
	kindRole               = "Role.rbac.authorization.k8s.io"
	kindRoleBinding        = "RoleBinding.rbac.authorization.k8s.io"
	kindClusterRole        = "ClusterRole.rbac.authorization.k8s.io"
	kindClusterRoleBinding = "ClusterRoleBinding.rbac.authorization.k8s.io"
)

const ownDomain = "pipeops.io"

// closedGroups are API groups no object of which is applied, whatever a policy says, with
// the reason: through each of them the agent's rights or its customer's policy could be
// changed, or the agent be made somebody else.
var closedGroups = map[string]string{
	"admissionregistration.k8s.io": "through admission the policy and the rights that bound the agent could be changed",
	"apiregistration.k8s.io":       "whoever serves an API group answers for it, to the agent too",
	"authentication.k8s.io":        "a token is somebody's identity",
	"authorization.k8s.io":         "it is a question, no object",
	"certificates.k8s.io":          "a certificate is somebody's identity",
	"metrics.k8s.io":               "it is only to be read",
}

// protect refuses what no policy can allow: objects by which the agent's own role, policy
// or marks could be changed.
func (a *Applier) protect(u *unstructured.Unstructured) error {
	ref := refOf(u)
	group, kind := groupOf(ref), kindOf(ref)
	switch reason := closedGroups[group]; {
	case reason != "":
		return never(reason)
	case group == ownDomain || strings.HasSuffix(group, "."+ownDomain):
		return problem.Errorf(problem.Forbidden, "use the call that is for it, such as pipeops-runner deploy", "objects of %s are not applied as manifests", group)
	case kind == kindCRD && strings.HasSuffix(ref.Name, "."+ownDomain):
		return never("it defines what the agent lives by")
	case kind == kindNamespace:
		return a.protectNamespace(u)
	case kind == kindSecret && nested(u, "type") == "kubernetes.io/service-account-token":
		return never("a token of a ServiceAccount is somebody's identity")
	case kind == "Node" || kind == "Event" || kind == "Event.events.k8s.io" || kind == "Binding":
		return never("it is no manifest of an application")
	}
	if group == "rbac.authorization.k8s.io" {
		if err := a.protectRole(u); err != nil {
			return err
		}
	}
	return marks(u)
}

func never(reason string) error {
	return problem.Errorf(problem.Forbidden, "leave it out: the owner of the cluster can apply it with kubectl", "the agent applies no such object: %s", reason)
}

func nested(u *unstructured.Unstructured, fields ...string) string {
	text, _, _ := unstructured.NestedString(u.Object, fields...)
	return text
}

func (a *Applier) protectNamespace(u *unstructured.Unstructured) error {
	if managed.ReservedNamespace(u.GetName(), a.config.Namespace) {
		return problem.Errorf(problem.Forbidden, "use a namespace of your own", "namespace %s belongs to Kubernetes or to the agent itself", u.GetName())
	}
	if len(a.config.Namespaces) > 0 || a.config.Manage == nil {
		return problem.Errorf(problem.Forbidden, "ask the owner of the cluster for it", "this agent is limited to some namespaces and makes none")
	}
	for key := range u.GetLabels() {
		if strings.HasPrefix(key, "pod-security.kubernetes.io/") {
			return problem.Errorf(problem.Forbidden, "leave the label "+key+" out", "a namespace's pod security is the cluster owner's to say")
		}
	}
	return marks(u)
}

// marks refuses labels and annotations by which the agent knows its own objects.
func marks(u *unstructured.Unstructured) error {
	for _, given := range []map[string]string{u.GetLabels(), u.GetAnnotations()} {
		for key, value := range given {
			domain, _, _ := strings.Cut(key, "/")
			if key == managed.By && value == managed.ByAgent || domain == ownDomain || strings.HasSuffix(domain, "."+ownDomain) {
				return problem.Errorf(problem.Forbidden, "leave it out", "%s=%s is a mark of the agent's", key, value)
			}
		}
	}
	return nil
}

// everybody are groups that the agent's ServiceAccount is in.
var everybody = map[string]bool{"system:serviceaccounts": true, "system:authenticated": true}

// protectRole refuses what would change the agent's own rights, or have it change them.
func (a *Applier) protectRole(u *unstructured.Unstructured) error {
	if strings.HasPrefix(u.GetName(), managed.FieldManager) || strings.HasPrefix(u.GetName(), "system:") ||
		strings.HasPrefix(nested(u, "roleRef", "name"), managed.FieldManager) {
		return never("roles of that name are the agent's own, or Kubernetes'")
	}
	subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
	for _, subject := range subjects {
		s, _ := subject.(map[string]any)
		kind, _ := s["kind"].(string)
		name, _ := s["name"].(string)
		namespace, _ := s["namespace"].(string)
		user := "system:serviceaccount:" + a.config.Namespace + ":" + a.config.ServiceAccount
		if kind == "ServiceAccount" && namespace == a.config.Namespace ||
			kind == "User" && name == user ||
			kind == "Group" && (everybody[name] || name == "system:serviceaccounts:"+a.config.Namespace) {
			return never("it would give rights to the agent itself")
		}
	}
	return nil
}
