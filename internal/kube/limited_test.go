package kube_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestStore_LimitedToNamespaces has an agent that was given one namespace keep out of
// another, though that carries the agent's label too.
func TestStore_LimitedToNamespaces(t *testing.T) {
	env := kubetest.ControlPlane(t)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "beyond", Labels: objectmeta.Labels()}}))
	k, err := kube.New(env.Agent, kube.Options{Namespace: kubetest.AgentNamespace, Namespaces: []string{production}})
	require.NoError(t, err)

	_, err = k.Secrets().List(t.Context(), production)
	require.NoError(t, err)
	_, err = k.Secrets().List(t.Context(), "beyond")
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, problemOf(t, err).Code)

	all, err := k.Namespaces().List(t.Context())
	require.NoError(t, err)
	assert.False(t, slices.ContainsFunc(all, func(ns runnerapi.Namespace) bool { return ns.Name != production }))

	for _, name := range []string{production, "beyond", "another"} {
		_, err = k.Namespaces().Set(t.Context(), name, runnerapi.NamespaceSpec{}, byTest)
		p := problemOf(t, err)
		assert.Equal(t, runnerapi.CodeForbidden, p.Code)
		assert.Contains(t, p.Detail, "limited to the namespaces "+production)
		assert.Equal(t, runnerapi.CodeForbidden, problemOf(t, k.Namespaces().Delete(t.Context(), name, byTest)).Code)
	}
	_, err = k.Cluster().Facts(t.Context())
	require.NoError(t, err)
}
