package deployments_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// TestRights_ManifestsNarrow: even who wants all of them gives the agent no way to more.
func TestRights_ManifestsNarrow(t *testing.T) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(deployments.ManifestRights()), 4096)
	roles := 0
	for {
		var role rbacv1.ClusterRole
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		if role.Kind != "ClusterRole" {
			continue
		}
		roles++
		for _, rule := range role.Rules {
			for _, words := range [][]string{rule.Verbs, rule.Resources, rule.APIGroups} {
				assert.NotContains(t, words, "*")
			}
			verbs := []string{"get", "create", "patch", "delete"}
			if role.Name == "pipeops-agent-grantable" {
				verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete"}
				assert.NotContains(t, rule.APIGroups, "rbac.authorization.k8s.io", "accounts of an application grant nothing")
				assert.Subset(t, verbs, rule.Verbs, "no escalate, bind or impersonate")
			} else {
				assert.Equal(t, verbs, rule.Verbs, "no escalate, bind or impersonate")
			}
			for _, never := range []string{"clusterroles", "clusterrolebindings", "secrets", "namespaces", "nodes", "serviceaccounts/token"} {
				assert.NotContains(t, rule.Resources, never)
			}
			for _, group := range []string{"admissionregistration.k8s.io", "apiregistration.k8s.io", "certificates.k8s.io", "pipeops.io"} {
				assert.NotContains(t, rule.APIGroups, group)
			}
		}
	}
	assert.Equal(t, 3, roles)
}
