// Package bounds says what an object has to be that the agent applies for somebody, be it
// of a set of manifests, of a Git source or of a chart, and whatever a policy allows:
// nothing by which the agent's own role, its customer's policy, or what it knows its
// objects by could be changed.
package bounds

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Names that the agent and Helm keep for ConfigMaps and Secrets of their own.
const (
	Inventory   = "pipeops-set-"     // prefix of a set's inventory
	ReleaseLock = "pipeops-release-" // prefix of a release's lock
	helmRelease = "sh.helm.release."
)

const ownDomain = "pipeops.io"

// Agent is whose objects are looked at.
type Agent struct {
	Namespace      string
	ServiceAccount string // pipeops-agent when empty
}

// closedGroups are API groups no object of which is applied, with the reason: through each
// of them the agent's rights or its customer's policy could be changed, or the agent be
// made somebody else.
var closedGroups = map[string]string{
	"admissionregistration.k8s.io": "through admission the policy and the rights that bound the agent could be changed",
	"apiregistration.k8s.io":       "whoever serves an API group answers for it, to the agent too",
	"authentication.k8s.io":        "a token is somebody's identity",
	"authorization.k8s.io":         "it is a question, no object",
	"certificates.k8s.io":          "a certificate is somebody's identity",
	"metrics.k8s.io":               "it is only to be read",
}

// Check refuses an object that nobody applies through the agent. Whether its namespace is
// one that the agent manages is asked by who knows it.
func (a Agent) Check(u *unstructured.Unstructured) error {
	gvk := u.GroupVersionKind()
	group, kind := gvk.Group, Kind(gvk)
	switch reason := closedGroups[group]; {
	case reason != "":
		return never(reason)
	case own(group):
		return problem.Errorf(problem.Forbidden, "use the call that is for it, such as pipeops-runner deploy", "objects of %s are the agent's own and not applied as manifests", group)
	case kind == "CustomResourceDefinition.apiextensions.k8s.io" && strings.HasSuffix(u.GetName(), "."+ownDomain):
		return never("it defines what the agent lives by")
	case kind == "Namespace":
		if err := a.namespace(u); err != nil {
			return err
		}
	case kind == "Secret" && text(u, "type") == "kubernetes.io/service-account-token":
		return never("a token of a ServiceAccount is somebody's identity")
	case kind == "Node" || kind == "Event" || kind == "Event.events.k8s.io" || kind == "Binding":
		return never("it is no manifest of an application")
	case group == "rbac.authorization.k8s.io":
		if err := a.role(u); err != nil {
			return err
		}
	}
	if err := name(kind, u.GetName()); err != nil {
		return err
	}
	return marks(u)
}

// CheckRemoval refuses to remove an object that a release holds: only what the agent lives
// by, and what takes others' with it. Whatever else Check refuses may go with the release
// that it belongs to: it is by making or changing it that somebody would gain something.
func (a Agent) CheckRemoval(u *unstructured.Unstructured) error {
	kind := Kind(u.GroupVersionKind())
	switch {
	case kind == "CustomResourceDefinition.apiextensions.k8s.io" && strings.HasSuffix(u.GetName(), "."+ownDomain):
		return stays("it defines what the agent lives by")
	case kind == "Namespace":
		return stays("whatever is in a namespace goes with it")
	case kind == "Node":
		return stays("it is no manifest of an application")
	case name(kind, u.GetName()) != nil:
		return stays("names like this one are those that the agent, or Helm, keeps for its own objects")
	}
	return nil
}

func stays(reason string) error {
	return problem.Errorf(problem.Forbidden, "the owner of the cluster can do it with helm", "the agent removes no such object: %s", reason)
}

// Kind is a kind as a policy names it: KIND or KIND.GROUP.
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

func text(u *unstructured.Unstructured, fields ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, fields...)
	return s
}

func (a Agent) namespace(u *unstructured.Unstructured) error {
	if managed.ReservedNamespace(u.GetName(), a.Namespace) {
		return problem.Errorf(problem.Forbidden, "use a namespace of your own", "namespace %s belongs to Kubernetes or to the agent itself", u.GetName())
	}
	for key := range u.GetLabels() {
		if strings.HasPrefix(key, "pod-security.kubernetes.io/") {
			return problem.Errorf(problem.Forbidden, "leave the label "+key+" out", "a namespace's pod security is the cluster owner's to say")
		}
	}
	return nil
}

// name refuses names by which the agent, or Helm, finds what it keeps.
func name(kind, name string) error {
	const fix = "choose another name"
	switch {
	case kind == "ConfigMap" && strings.HasPrefix(name, Inventory):
		return problem.Errorf(problem.Forbidden, fix, "ConfigMaps whose names begin with %s are inventories of sets", Inventory)
	case kind == "ConfigMap" && strings.HasPrefix(name, ReleaseLock):
		return problem.Errorf(problem.Forbidden, fix, "ConfigMaps whose names begin with %s are locks of releases", ReleaseLock)
	case kind == "Secret" && strings.HasPrefix(name, helmRelease):
		return problem.Errorf(problem.Forbidden, fix, "Secrets whose names begin with %s are those in which Helm keeps releases", helmRelease)
	case strings.HasPrefix(name, managed.FieldManager):
		return problem.Errorf(problem.Forbidden, fix, "names that begin with %s are those that the agent keeps for its own objects", managed.FieldManager)
	}
	return nil
}

// marks refuses labels and annotations by which the agent knows its own objects.
func marks(u *unstructured.Unstructured) error {
	for _, given := range []map[string]string{u.GetLabels(), u.GetAnnotations()} {
		for key, value := range given {
			domain, _, _ := strings.Cut(key, "/")
			if key == managed.By && value == managed.ByAgent || own(domain) {
				return problem.Errorf(problem.Forbidden, "leave it out", "%s=%s is a mark of the agent's", key, value)
			}
		}
	}
	return nil
}
