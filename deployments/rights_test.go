package deployments_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// TestRights_GrantedAndUsed compares rights.go, which a test of the agent
// holds against what is really asked of the API server, with rbac.yaml: nothing
// that is used is missing, and nothing that is granted is not used.
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
	for _, o := range objects(t) {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		var role rbacv1.ClusterRole
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role))
		into := granted
		if o.GetKind() == "Role" { // of the agent's own namespace
			into = grantedOwn
		}
		for _, rule := range role.Rules {
			add(into, rule)
		}
	}
	assert.Equal(t, slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)))
	assert.Equal(t, slices.Sorted(maps.Keys(grantedOwn)), slices.Sorted(maps.Keys(usedOwn)), "in the agent's own namespace")

	for name, apart := range map[string]struct {
		manifest []byte
		used     map[string]bool
	}{"node-rights.yaml": {deployments.NodeRights(), usedNodes}, "kubernetes-api-rights.yaml": {deployments.KubernetesAPIRights(), usedUsers}} {
		granted := map[string]bool{}
		for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(apart.manifest), 4096); ; {
			var role rbacv1.ClusterRole
			err := decoder.Decode(&role)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			for _, rule := range role.Rules {
				add(granted, rule)
				if apart.used["impersonate users"] {
					assert.NotEmpty(t, rule.ResourceNames, "the agent may become nobody but those who are named")
				}
			}
		}
		assert.Equal(t, slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(apart.used)), "of "+name)
	}

	text, err := os.ReadFile("agent/sources.yaml")
	require.NoError(t, err)
	var follows rbacv1.ClusterRole
	require.NoError(t, yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096).Decode(&follows))
	grantedSources := map[string]bool{}
	for _, rule := range follows.Rules {
		add(grantedSources, rule)
	}
	assert.Equal(t, slices.Sorted(maps.Keys(grantedSources)), slices.Sorted(maps.Keys(usedSources)), "of sources.yaml")
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
