package policy

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Kubernetes defines the identity with which Runners use the Kubernetes API. The cluster's own RBAC
// decides what that user and those groups may do.
type Kubernetes struct {
	User   string   `json:"user"`
	Groups []string `json:"groups,omitzero"`
	// ReadOnly allows only reads, regardless of RBAC, and nothing that leads into a pod.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Impersonate lists the identities that a Runner may name with kubectl --as and --as-group. Nil
	// allows none.
	Impersonate *Impersonation `json:"impersonate,omitempty"`
	// Streams is how many watches, followed logs and sessions one Runner may have open; 0 is the
	// agent's setting.
	Streams int `json:"streams,omitempty"`
}

// Impersonation lists whom a Runner may impersonate, by exact names.
type Impersonation struct {
	Users  []string `json:"users,omitzero"`
	Groups []string `json:"groups,omitzero"`
}

// identity matches a user's or group's name. Spaces around it would not survive HTTP.
var identity = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9@._:/+=-]{0,251}[A-Za-z0-9])?$`)

// systems is the prefix of names that Kubernetes reserves, such as system:masters.
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
	if r.Kubernetes.Streams < 0 {
		c.add(at+".kubernetes.streams", "must not be less than 0")
	}
	if r.Kubernetes.Impersonate == nil {
		return
	}
	who := *r.Kubernetes.Impersonate
	for list, names := range map[string][]string{"users": who.Users, "groups": who.Groups} {
		for i, name := range names {
			c.identity(fmt.Sprintf("%s.kubernetes.impersonate.%s[%d]", at, list, i), name)
		}
	}
}

func (c *checking) identity(field, name string) {
	switch {
	case strings.HasPrefix(name, systems):
		c.add(field, "%.100q is Kubernetes' own: name a user or group of yours, and bind a role to it", name)
	case !identity.MatchString(name):
		c.add(field, "%.100q is not a name: letters, digits and @._:/+=- in between, at most 253", name)
	}
}

// impersonates returns the name in an identity that the rule does not allow to impersonate, or an
// empty string.
func (k Kubernetes) impersonates(who runnerapi.KubernetesIdentity) (refused string) {
	allowed := Impersonation{}
	if k.Impersonate != nil {
		allowed = *k.Impersonate
	}
	if who.User != "" && !slices.Contains(allowed.Users, who.User) {
		return fmt.Sprintf("user %.100q", who.User)
	}
	for _, group := range who.Groups {
		if !slices.Contains(allowed.Groups, group) {
			return fmt.Sprintf("group %.100q", group)
		}
	}
	return ""
}

// KubernetesGrant implements backend.Policy.
func (p *Policy) KubernetesGrant(i runnerapi.Intent) (runnerapi.KubernetesGrant, error) {
	rule, err := p.rule(i)
	if err != nil {
		return runnerapi.KubernetesGrant{}, err
	}
	p.mu.Lock()
	doc := p.doc
	p.mu.Unlock()
	grant := rule.grant(i.Kubernetes)
	grant.Hidden, grant.AllNamespacesDenied = doc.hidden(i, p.source)
	if grant.AllNamespacesDenied != nil && i.Kubernetes.Selected != "" {
		return runnerapi.KubernetesGrant{}, grant.AllNamespacesDenied
	}
	return grant, nil
}

// grant returns the grant for a request that the rule allows.
func (r Rule) grant(k *runnerapi.KubernetesRequest) runnerapi.KubernetesGrant {
	g := runnerapi.KubernetesGrant{
		As:             runnerapi.KubernetesIdentity{User: r.Kubernetes.User, Groups: slices.Clone(r.Kubernetes.Groups)},
		AgentNamespace: slices.Contains(r.Namespaces, k.AgentNamespace),
		ReadOnly:       r.Kubernetes.ReadOnly, Streams: r.Kubernetes.Streams,
	}
	if k.Impersonate.User != "" {
		g.As = k.Impersonate
	}
	return g
}

// kubernetes checks a request to the Kubernetes API.
func (r ruling) kubernetes(i runnerapi.Intent) error {
	k := i.Kubernetes
	switch {
	case r.Kubernetes == nil:
		return r.refuse("", "kubernetes", "does not say as whom %s is allowed: kubernetes: {user: NAME, groups: [NAME]}", i.Command)
	case k == nil: // for a policy that is tried, no more is known
		return nil
	}
	if refused := r.Kubernetes.impersonates(k.Impersonate); refused != "" {
		return r.refuse("", "kubernetes.impersonate", "does not allow to impersonate %s", refused)
	}
	if err := r.routing(k); err != nil {
		return err
	}
	now := r.grant(k)
	switch {
	case k.Grant.As.User != "" && !k.Grant.As.Equal(now.As):
		return r.refuse("", "kubernetes", "names another user or other groups than when this began")
	case k.Grant.AgentNamespace && !now.AgentNamespace:
		return r.refuse("", "namespaces", "does not name the agent's own namespace %s any more", k.AgentNamespace)
	case k.InAgentNamespace && !now.AgentNamespace:
		return r.refuse("", "namespaces", "does not name the agent's own namespace %s%s: no pattern is about that",
			k.AgentNamespace, through(k))
	case r.Record && k.RunsCommands():
		return r.refuse("", "record", "has each session recorded, and the agent cannot record %s: use pipeops-runner exec", what(k))
	case r.Kubernetes.ReadOnly && !k.Reads() && !k.Discovery:
		return r.refuse("", "kubernetes.readOnly", "allows reading only, and not to %s %s", k.Verb, what(k))
	}
	return nil
}

// routing checks writes of resources that let something be reached from outside. A patch does not
// show the whole object, so a rule that bounds hosts allows no write of them.
func (r ruling) routing(k *runnerapi.KubernetesRequest) error {
	writes := k.Verb == "create" || k.Verb == "update" || k.Verb == "patch"
	service := k.Group == "" && k.Resource == "services"
	if !writes || k.Connects() || k.Reads() || !service && !input.Routes(k.Group, k.Resource) {
		return nil
	}
	return r.outside(runnerapi.NameIntent{Name: what(k) + ", which the Kubernetes API writes"})
}

// through describes how a request that does not name the agent's namespace reaches it.
func through(k *runnerapi.KubernetesRequest) string {
	if k.Resource == "nodes" {
		return ", which a node's kubelet leads to"
	}
	return ""
}

// what returns the name of a request's resource.
func what(k *runnerapi.KubernetesRequest) string {
	name := k.Resource
	if k.Group != "" {
		name += "." + k.Group
	}
	if k.Subresource != "" {
		name += "/" + k.Subresource
	}
	name = cmp.Or(name, k.Path)
	return fmt.Sprintf("%.100s", name)
}
