package helm

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
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

// TestPlace_ShareByNamespace: releases of a namespace whose pods never get ready leave a place to
// those of others.
func TestPlace_ShareByNamespace(t *testing.T) {
	r := New(&rest.Config{}, Options{})
	ended, end := context.WithCancel(t.Context())
	end()
	var leave func()
	for range maxOfNamespace {
		var err error
		leave, err = r.place(ended, "slow")
		require.NoError(t, err)
	}
	_, err := r.place(ended, "slow")
	require.ErrorContains(t, err, "3 of namespace slow")
	_, err = r.place(ended, "other")
	require.NoError(t, err)
	leave()
	_, err = r.place(t.Context(), "slow")
	require.NoError(t, err)
}
