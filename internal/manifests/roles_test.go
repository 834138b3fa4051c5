package manifests_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/manifests"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// operator is what charts usually bring for an account: in namespace NS.
const operator = `apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: web}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: web}
subjects: [{kind: ServiceAccount, name: web, namespace: NS}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: web}
rules:
- {apiGroups: [""], resources: [configmaps, pods], verbs: [get, list, watch]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web}
`

// TestSet_RoleWithBinding has both in one set, with the agent's real admission policy.
func TestSet_RoleWithBinding(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns := env.Namespace(t)
	a := applier{manifests.New(manifests.Config{REST: env.Agent, Namespace: kubetest.AgentOf(ns), Namespaces: []string{ns}}), t, env}
	set := manifests.Set{Namespace: ns, Name: "web"}
	text := strings.ReplaceAll(operator, "NS", ns)

	env.Entitle(t, ns, kubetest.ManifestRole)
	_, err := a.apply(set, text, prune)
	p := problemtest.Of(t, err)
	assert.Equal(t, problem.Forbidden, p.Code)
	assert.Contains(t, p.Detail, "Role/"+ns+"/web: the agent grants no right that it does not hold itself, and lacks ")
	assert.Contains(t, p.Detail, "watch of configmaps")
	assert.Contains(t, p.Detail, "of leases.coordination.k8s.io")
	assert.Contains(t, p.Fix, "pipeops-agent-grantable")

	env.Entitle(t, ns, kubetest.GrantableRole)
	r := a.applied(set, text, manifests.Options{DryRun: true})
	assert.Equal(t, []string{"created ServiceAccount/web", "created Role/web", "created RoleBinding/web"}, actions(r))
	r = a.applied(set, text, prune)
	for _, o := range r.Objects {
		require.Nil(t, o.Problem, "%+v", o.Problem)
	}
	binding := &rbacv1.RoleBinding{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, binding))
	assert.Equal(t, "web", binding.Subjects[0].Name)
	r = a.applied(set, text, prune)
	assert.Equal(t, []string{"unchanged ServiceAccount/web", "unchanged Role/web", "unchanged RoleBinding/web"}, actions(r))

	r = a.applied(set, strings.Replace(text, ", namespace: "+ns, "", 1), prune)
	assert.Equal(t, "configured RoleBinding/web", actions(r)[2], "its own namespace is meant")
	_, err = a.apply(set, strings.Replace(text, "namespace: "+ns, "namespace: default", 1), prune)
	assert.Contains(t, problemtest.Of(t, err).Detail, `the subject ServiceAccount web in "default"`)
	_, err = a.apply(set, strings.Replace(text, "kind: Role, name: web", "kind: Role, name: absent", 1), prune)
	assert.Equal(t, problem.NotFound, problemtest.Of(t, err).Code, "a Role that comes from nowhere")
	_, err = a.Delete(t.Context(), set, manifests.Options{})
	require.NoError(t, err)
	assert.Error(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "web"}, binding))
}
