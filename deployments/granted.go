package deployments

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Grant is one thing that the agent may do.
type Grant struct {
	Verb, Group, Resource, Subresource string
	Name                               string // empty for all objects
}

// String returns a Grant as kubectl would write it.
func (g Grant) String() string {
	s := g.Verb + " " + g.Resource
	if g.Group != "" {
		s += "." + g.Group
	}
	if g.Subresource != "" {
		s += "/" + g.Subresource
	}
	if g.Name != "" {
		s += " " + g.Name
	}
	return s
}

// Grants are the agent's rights, by place.
type Grants struct {
	Cluster []Grant // everywhere
	Own     []Grant // in the agent's own namespace
	Managed []Grant // in each namespace that it manages
}

// Granted reads the agent's rights from the roles in its manifest, so there is no other list.
func Granted() (Grants, error) {
	return grantsIn("agent/rbac.yaml")
}

// GrantedForSelfUpdate returns the further rights of an agent that updates itself.
func GrantedForSelfUpdate() (Grants, error) { return grantsIn(selfUpdatePart) }

func grantsIn(part string) (Grants, error) {
	text, err := parts.ReadFile(part)
	if err != nil {
		return Grants{}, err
	}
	var granted Grants
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return granted, nil
		} else if err != nil {
			return granted, fmt.Errorf("%s: %w", part, err)
		}
		switch {
		case role.Kind == "Role":
			granted.Own = append(granted.Own, grantsOf(role.Rules)...)
		case role.Kind == "ClusterRole" && role.Name == "pipeops-agent":
			granted.Cluster = append(granted.Cluster, grantsOf(role.Rules)...)
		case role.Kind == "ClusterRole":
			granted.Managed = append(granted.Managed, grantsOf(role.Rules)...)
		}
	}
}

func grantsOf(rules []rbacv1.PolicyRule) (grants []Grant) {
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				resource, subresource, _ := strings.Cut(resource, "/")
				for _, verb := range rule.Verbs {
					for _, name := range names {
						grants = append(grants, Grant{verb, group, resource, subresource, name})
					}
				}
			}
		}
	}
	return grants
}
