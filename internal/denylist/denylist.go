// Package denylist defines which objects the agent never applies on behalf of others, from sets of
// manifests, Git sources and charts, and which names no call may give to ConfigMaps and Secrets.
// Regardless of the policy, no such object may change the agent's own role, the cluster owner's
// policy, or the names and marks by which the agent identifies its objects.
package denylist

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Names that the agent and Helm reserve for ConfigMaps and Secrets of their own.
const (
	Inventory   = "pipeops-set-"     // prefix of a set's inventory
	ReleaseLock = "pipeops-release-" // prefix of a release's lock
	helmRelease = "sh.helm.release."
)

const ownDomain = "pipeops.io"

// Agent identifies the agent on whose behalf objects are checked.
type Agent struct {
	Namespace      string
	ServiceAccount string // pipeops-agent when empty
}

// closedGroups are API groups whose objects are never applied, with the reason. Through each of
// them, a caller could change the agent's rights or the cluster owner's policy, or give the agent
// another identity.
var closedGroups = map[string]string{
	"admissionregistration.k8s.io": "through admission the policy and the rights that bound the agent could be changed",
	"apiregistration.k8s.io":       "the server of an API group responds for it, also to the agent",
	"authentication.k8s.io":        "a token is an identity",
	"authorization.k8s.io":         "it is a question, no object",
	"certificates.k8s.io":          "a certificate is an identity",
	"metrics.k8s.io":               "it is only to be read",
}

// Check refuses an object that may not be applied through the agent. The caller checks whether its
// namespace is managed.
func (a Agent) Check(u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	group, kind := gvk.Group, Kind(gvk)
	switch reason := closedGroups[group]; {
	case reason != "":
		return never(reason)
	case own(group):
		return problem.Errorf(problem.Forbidden, "use the call that is for it, such as pipeops-runner deploy", "objects of %s are the agent's own and not applied as manifests", group)
	case kind == "CustomResourceDefinition.apiextensions.k8s.io" && strings.HasSuffix(u.GetName(), "."+ownDomain):
		return never("it defines permissions of the agent itself")
	case kind == "Namespace":
		if err := a.namespace(u); err != nil {
			return err
		}
	case kind == "Secret" && text(u, "type") == "kubernetes.io/service-account-token":
		return never("a token of a ServiceAccount is an identity")
	case kind == "Service" && given(u, "spec", ExternalIPs):
		return never("with spec.externalIPs a Service takes traffic to addresses of others (CVE-2020-8554)")
	case kind == "Node" || kind == "Event" || kind == "Event.events.k8s.io" || kind == "Binding":
		return never("it is not a manifest of an application")
	case group == "rbac.authorization.k8s.io":
		if err := a.role(u); err != nil {
			return err
		}
	}
	if err := CheckName(kind, u.GetName()); err != nil {
		return err
	}
	return marks(u.Object)
}

// CheckRemoval refuses the removal of a release's object only if the agent depends on the object,
// or if the removal takes objects of others with it. Everything else that Check refuses may be
// removed with its release: only making or changing such an object would give an attacker anything.
func (a Agent) CheckRemoval(u *unstructured.Unstructured) error {
	kind := Kind(u.GroupVersionKind())
	switch {
	case kind == "CustomResourceDefinition.apiextensions.k8s.io" && strings.HasSuffix(u.GetName(), "."+ownDomain):
		return stays("it defines permissions of the agent itself")
	case kind == "Namespace":
		return stays("whatever is in a namespace goes with it")
	case kind == "Node":
		return stays("it is not a manifest of an application")
	case CheckName(kind, u.GetName()) != nil:
		return stays("names like this one are those that the agent, or Helm, keeps for its own objects")
	}
	return nil
}

func stays(reason string) error {
	return problem.Errorf(problem.Forbidden, "the owner of the cluster can do it with helm", "the agent removes no such object: %s", reason)
}

// Kind returns a kind as a policy names it: KIND or KIND.GROUP.
func Kind(gvk schema.GroupVersionKind) string {
	if gvk.Group == "" {
		return gvk.Kind
	}
	return gvk.Kind + "." + gvk.Group
}

func own(domain string) bool {
	return domain == ownDomain || strings.HasSuffix(domain, "."+ownDomain)
}

func never(reason string) error {
	return problem.Errorf(problem.Forbidden, "leave it out: the owner of the cluster can apply it with kubectl", "the agent applies no such object: %s", reason)
}

// ExternalIPs is the field of a Service's spec that no Runner may set.
const ExternalIPs = "externalIPs"

// given reports whether a field has a value that is not an empty list.
func given(u *unstructured.Unstructured, fields ...string) bool {
	value, found, err := unstructured.NestedFieldNoCopy(u.Object, fields...)
	list, ok := value.([]any)
	return err == nil && found && value != nil && (!ok || len(list) > 0)
}

func text(u *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...)
	return s
}

func (a Agent) namespace(u *unstructured.Unstructured) error {
	if objectmeta.ReservedNamespace(u.GetName(), a.Namespace) {
		return problem.Errorf(problem.Forbidden, "use a namespace of your own", "namespace %s belongs to Kubernetes or to the agent itself", u.GetName())
	}
	for key := range notes(u.Object["metadata"], "labels") {
		if strings.HasPrefix(key, "pod-security.kubernetes.io/") {
			return problem.Errorf(problem.Forbidden, "leave the label "+key+" out", "a namespace's pod security is the cluster owner's to say")
		}
	}
	return nil
}

// CheckName refuses names by which the agent, or Helm, finds its own objects.
func CheckName(kind, name string) *problem.Error {
	const fix = "choose another name"
	switch {
	case kind == "ConfigMap" && strings.HasPrefix(name, Inventory):
		return problem.Errorf(problem.Forbidden, fix, "ConfigMaps whose names begin with %s are inventories of sets", Inventory)
	case kind == "ConfigMap" && strings.HasPrefix(name, ReleaseLock):
		return problem.Errorf(problem.Forbidden, fix, "ConfigMaps whose names begin with %s are locks of releases", ReleaseLock)
	case kind == "Secret" && strings.HasPrefix(name, helmRelease):
		return problem.Errorf(problem.Forbidden, fix, "Secrets whose names begin with %s are those in which Helm keeps releases", helmRelease)
	case strings.HasPrefix(name, objectmeta.FieldManager):
		return problem.Errorf(problem.Forbidden, fix, "names that begin with %s are those that the agent keeps for its own objects", objectmeta.FieldManager)
	}
	return nil
}

// marks refuses labels and annotations by which the agent identifies its own objects and their
// pods, at any depth: Kubernetes, and controllers of others, copy the metadata of templates to what
// they make. A Service finds pods by their labels alone.
func marks(v any) error {
	switch v := v.(type) {
	case []any:
		for _, item := range v {
			if err := marks(item); err != nil {
				return err
			}
		}
	case map[string]any:
		for key, below := range v {
			if key == "metadata" {
				if err := marked(below); err != nil {
					return err
				}
			}
			if err := marks(below); err != nil {
				return err
			}
		}
	}
	return nil
}

// marked refuses the agent's marks in the metadata of an object or a template.
func marked(meta any) error {
	for _, field := range []string{"labels", "annotations"} {
		for key, value := range notes(meta, field) {
			domain, _, _ := strings.Cut(key, "/")
			if key == objectmeta.ManagedBy && value == objectmeta.ManagedByAgent || own(domain) {
				return problem.Errorf(problem.Forbidden, "leave it out", "%s=%v is a mark of the agent's", key, value)
			}
		}
	}
	return nil
}

// notes returns labels or annotations as they were sent. A null, which Kubernetes reads as an empty
// text, hides no others.
func notes(meta any, field string) map[string]any {
	m, _ := meta.(map[string]any)
	given, _ := m[field].(map[string]any)
	return given
}
