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

// Right is one thing that the agent may do.
type Right struct {
	Verb, Group, Resource, Subresource string
	Name                               string // empty for all objects
}

// String is a Right as kubectl would write it.
func (r Right) String() string {
	s := r.Verb + " " + r.Resource
	if r.Group != "" {
		s += "." + r.Group
	}
	if r.Subresource != "" {
		s += "/" + r.Subresource
	}
	if r.Name != "" {
		s += " " + r.Name
	}
	return s
}

// Rights are the agent's, by where it has them.
type Rights struct {
	Cluster []Right // everywhere
	Own     []Right // in the agent's own namespace
	Managed []Right // in each namespace that it manages
}

// Needed reads the agent's rights out of the roles in its manifest: it needs
// what these grant and nothing else, so there is no other list.
func Needed() (Rights, error) {
	text, err := parts.ReadFile("agent/rbac.yaml")
	if err != nil {
		return Rights{}, err
	}
	var needed Rights
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var role rbacv1.ClusterRole // a Role has the same fields
		if err := decoder.Decode(&role); errors.Is(err, io.EOF) {
			return needed, nil
		} else if err != nil {
			return needed, fmt.Errorf("agent/rbac.yaml: %w", err)
		}
		switch {
		case role.Kind == "Role":
			needed.Own = append(needed.Own, rightsOf(role.Rules)...)
		case role.Kind == "ClusterRole" && role.Name == "pipeops-agent":
			needed.Cluster = append(needed.Cluster, rightsOf(role.Rules)...)
		case role.Kind == "ClusterRole":
			needed.Managed = append(needed.Managed, rightsOf(role.Rules)...)
		}
	}
}

func rightsOf(rules []rbacv1.PolicyRule) (rights []Right) {
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
						rights = append(rights, Right{verb, group, resource, subresource, name})
					}
				}
			}
		}
	}
	return rights
}
