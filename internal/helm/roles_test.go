package helm_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// operator is a chart with an account, its Role and the RoleBinding, as `helm create` and most
// others have them.
func operator(t testing.TB) []byte {
	return pack(t, map[string]string{
		"values.yaml": "to: \"\"\nverbs: [get, list, watch]\n",
		"templates/rbac.yaml": `apiVersion: v1
kind: ServiceAccount
metadata: {name: {{ .Release.Name }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: {{ .Release.Name }}}
rules:
- {apiGroups: [""], resources: [configmaps, pods], verbs: {{ toJson .Values.verbs }}}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: {{ .Release.Name }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .Release.Name }}}
subjects: [{kind: ServiceAccount, name: {{ .Release.Name }}, namespace: {{ .Values.to | default .Release.Namespace }}}]
`})
}

// TestChart_RoleWithBinding uses the agent's real admission policy.
func TestChart_RoleWithBinding(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns := env.Namespace(t)
	env.Entitle(t, ns, kubetest.ManifestRole, kubetest.GrantableRole)
	r := start(t, env.Agent, func(o *helm.Options) { o.Namespace, o.Namespaces = kubetest.AgentOf(ns), []string{ns} })
	at := runnerapi.Key{Namespace: ns, Name: "operator"}
	put := func(values map[string]any) runnerapi.Release {
		_, err := r.Deploy(t.Context(), at, of(operator(t), values), byTest)
		require.NoError(t, err)
		release, err := r.Wait(t.Context(), at)
		require.NoError(t, err)
		return release
	}
	dry := byTest
	dry.DryRun = true
	would, err := r.Deploy(t.Context(), at, of(operator(t), nil), dry)
	require.NoError(t, err)
	require.Len(t, would.Objects, 3)
	for _, o := range would.Objects {
		assert.Equal(t, "create", o.Change, o.Kind)
	}
	release := put(nil)
	require.Equal(t, runnerapi.ReleaseDeployed, release.Status, release.Description)
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "operator"}, binding))
	release = put(map[string]any{"verbs": []any{"get"}})
	require.Equal(t, runnerapi.ReleaseDeployed, release.Status, release.Description)

	for says, values := range map[string]map[string]any{
		`the subject ServiceAccount operator in "default"`: {"to": "default"},
		"would give rights to the agent itself":            {"to": kubetest.AgentOf(ns)},
		"grants no \"*\" among its verbs":                  {"verbs": []any{"*"}},
		"lacks deletecollection of configmaps":             {"verbs": []any{"deletecollection"}},
	} {
		_, err = r.Deploy(t.Context(), at, of(operator(t), values), dry)
		assert.Contains(t, problemOf(t, err).Detail, says)
	}
}
