package helm

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
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

// TestPlace_Shares: releases of a namespace, or of a Runner, whose pods never get ready leave a
// place to those of others.
func TestPlace_Shares(t *testing.T) {
	t.Run("by namespace", func(t *testing.T) {
		shares(t, func(int) limit.Owner { return limit.Owner{Namespace: "slow"} })
	})
	t.Run("by Runner", func(t *testing.T) {
		shares(t, func(n int) limit.Owner { return limit.Owner{Namespace: strconv.Itoa(n / 2), Runner: "slow"} })
	})
}

func shares(t *testing.T, slow func(n int) limit.Owner) {
	t.Helper()
	r := New(&rest.Config{}, Options{})
	ended, end := context.WithCancel(t.Context())
	end()
	var leave func()
	for n := range maxAtWork - 1 {
		var err error
		leave, err = r.place(ended, slow(n))
		require.NoError(t, err)
	}
	_, err := r.place(ended, slow(maxAtWork))
	require.ErrorContains(t, err, fmt.Sprintf("3 of namespace %s or of Runner %s", slow(maxAtWork).Namespace, slow(maxAtWork).Runner))
	_, err = r.place(ended, limit.Owner{Namespace: "other", Runner: "other"})
	require.NoError(t, err)
	leave()
	_, err = r.place(t.Context(), slow(maxAtWork))
	require.NoError(t, err)
}
