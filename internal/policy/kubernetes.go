package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Kubernetes says as whom Runners use the Kubernetes API. What that user and those
// groups may do is up to the cluster's own RBAC.
type Kubernetes struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitempty"`
	// ReadOnly allows nothing but reading, whatever RBAC says, and nothing that leads into
	// a pod.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// identity is a user's or group's name. Spaces around it would not survive HTTP.
var identity = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9@._:/+=-]{0,251}[A-Za-z0-9])?$`)

// systems begins the names that Kubernetes keeps for itself, such as system:masters.
const systems = "system:"

func (c *checking) kubernetes(at string, r Rule) {
	named := slices.Contains(r.Commands, runnerapi.KubernetesCall)
	switch {
	case r.Kubernetes != nil && r.Deny:
		c.add(at+".kubernetes", "a rule that denies says nothing of how")
	case r.Kubernetes != nil && !named:
		c.add(at+".kubernetes", "is about %s, which the rule's commands have to name", runnerapi.KubernetesCall)
	}
	if r.Kubernetes == nil {
		return
	}
	c.identity(at+".kubernetes.user", r.Kubernetes.User)
	for i, group := range r.Kubernetes.Groups {
		c.identity(fmt.Sprintf("%s.kubernetes.groups[%d]", at, i), group)
	}
}

func (c *checking) identity(field, name string) {
	switch {
	case strings.HasPrefix(name, systems):
		c.add(field, "%.100q is Kubernetes' own: name a user or group of yours, and bind a role to it", name)
	case !identity.MatchString(name):
		c.add(field, "%.100q is no name: letters, digits and @._:/+=- in between, at most 253", name)
	}
}

// KubernetesIdentity implements runnerapi.Policy.
func (p *Policy) KubernetesIdentity(i runnerapi.Intent) (runnerapi.KubernetesIdentity, error) {
	if err := p.Decide(i); err != nil {
		return runnerapi.KubernetesIdentity{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := slices.IndexFunc(p.doc.Rules, func(r Rule) bool { return r.about(i) })
	if at < 0 || p.doc.Rules[at].Kubernetes == nil { // it has changed since a moment ago
		return runnerapi.KubernetesIdentity{}, runnerapi.PolicyDenied("send it again", "the customer's policy has just changed")
	}
	return p.doc.Rules[at].Kubernetes.as(), nil
}

func (k Kubernetes) as() runnerapi.KubernetesIdentity {
	return runnerapi.KubernetesIdentity{User: k.User, Groups: slices.Clone(k.Groups)}
}

// kubernetes looks at a request to the Kubernetes API.
func (r ruling) kubernetes(i runnerapi.Intent) error {
	k := i.Kubernetes
	switch {
	case r.Kubernetes == nil:
		return r.refuse("", "kubernetes", "does not say as whom %s is allowed: kubernetes: {user: NAME, groups: [NAME]}", i.Command)
	case k == nil: // of a policy that is tried, no more is known
		return nil
	case k.As.User != "" && !k.As.Equal(r.Kubernetes.as()):
		return r.refuse("", "kubernetes", "names another user or other groups than when this began")
	case k.OwnNamespace && !slices.Contains(r.Namespaces, i.Namespace):
		return r.refuse("", "namespaces", "does not name the agent's own namespace %s: no pattern is about that", i.Namespace)
	case r.Kubernetes.ReadOnly && !k.Reads() && !k.Discovery:
		return r.refuse("", "kubernetes.readOnly", "allows reading only, and not to %s %s", k.Verb, what(k))
	}
	return nil
}

// what names the resource of a request.
func what(k *runnerapi.KubernetesRequest) string {
	name := k.Resource
	if k.Group != "" {
		name += "." + k.Group
	}
	if k.Subresource != "" {
		name += "/" + k.Subresource
	}
	if name == "" {
		name = k.Path
	}
	return fmt.Sprintf("%.100s", name)
}
