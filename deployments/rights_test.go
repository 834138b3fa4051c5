package deployments_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// TestRights_GrantedAndUsed compares rights.go with rbac.yaml: all rights that are used are
// granted, and no others. A test of the agent compares rights.go with the requests to a real API
// server.
func TestRights_GrantedAndUsed(t *testing.T) {
	used, usedOwn, usedNodes, usedUsers, usedSources := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	note := func(rights []deployments.Right) {
		for _, r := range rights {
			into := used
			if r.Nodes {
				into = usedNodes
			}
			if r.Users {
				into = usedUsers
			}
			if r.Sources {
				into = usedSources
			}
			if r.Own {
				into = usedOwn
			}
			for _, verb := range r.Verbs {
				into[verb+" "+r.Resource] = true
			}
		}
	}
	for _, rights := range deployments.Calls() {
		note(rights)
	}
	for _, u := range deployments.Upkeeps() {
		note(u.Rights)
	}
	granted, grantedOwn := map[string]bool{}, map[string]bool{}
	for _, role := range agentRoles(t) {
		into := granted
		if role.Kind == "Role" { // of the agent's own namespace
			into = grantedOwn
		}
		for _, rule := range role.Rules {
			add(into, rule)
		}
	}
	assert.Equal(t, slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)))
	assert.Equal(t, slices.Sorted(maps.Keys(grantedOwn)), slices.Sorted(maps.Keys(usedOwn)), "in the agent's own namespace")

	sources, err := os.ReadFile("agent/sources.yaml")
	require.NoError(t, err)
	for name, apart := range map[string]struct {
		manifest []byte
		used     map[string]bool
	}{
		"node-rights.yaml":           {deployments.NodeRights(), usedNodes},
		"kubernetes-api-rights.yaml": {deployments.KubernetesAPIRights(), usedUsers},
		"sources.yaml":               {sources, usedSources},
	} {
		granted := map[string]bool{}
		for _, role := range rolesOf(t, apart.manifest) {
			for _, rule := range role.Rules {
				add(granted, rule)
				if apart.used["impersonate users"] {
					assert.NotEmpty(t, rule.ResourceNames, "the agent may become nobody but those who are named")
				}
			}
		}
		assert.Equal(t, slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(apart.used)), "of "+name)
	}
}

func add(into map[string]bool, rule rbacv1.PolicyRule) {
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			name, sub, _ := strings.Cut(resource, "/")
			if group != "" {
				name += "." + group
			}
			if sub != "" {
				name += "/" + sub
			}
			for _, verb := range rule.Verbs {
				into[verb+" "+name] = true
			}
		}
	}
}
