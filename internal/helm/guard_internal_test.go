package helm

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGuard_APIPaths(t *testing.T) {
	for path, want := range map[string]struct {
		namespace string
		resource  bool
	}{
		"/version": {"", false}, "/api": {"", false}, "/api/v1": {"", false}, "/apis/apps/v1": {"", false}, "/openapi/v3": {"", false},
		"/api/v1/namespaces/a/secrets/b":             {"a", true},
		"/apis/apps/v1/namespaces/a/deployments":     {"a", true},
		"/api/v1/namespaces/a":                       {"", true},
		"/api/v1/nodes":                              {"", true},
		"/apis/rbac.authorization.k8s.io/v1/x/y":     {"", true},
		"/behind/a/proxy/api/v1/namespaces/b/pods/c": {"b", true},
	} {
		namespace, resource := pathOf(path)
		assert.Equal(t, want.namespace, namespace, path)
		assert.Equal(t, want.resource, resource, path)
	}
}
