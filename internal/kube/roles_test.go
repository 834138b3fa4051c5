package kube_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// TestRoles_StayInNamespace tries with the agent's own credentials, and all that
// manifest-rights.yaml grants, what would give rights to others than accounts of a
// namespace that the agent manages, or more than these may have.
func TestRoles_StayInNamespace(t *testing.T) {
	env := kubetest.ControlPlane(t)
	ns := env.Namespace(t)
	env.Entitle(t, ns, kubetest.ManifestRole, kubetest.GrantableRole)
	agent, err := client.New(env.Agent, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	bystander := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bystander-"}}
	require.NoError(t, env.Client.Create(t.Context(), bystander))
	for _, name := range []string{bystander.Name, kubetest.AgentOf(ns)} { // even with rights there
		env.Entitle(t, name, kubetest.ManifestRole, kubetest.GrantableRole)
	}
	reads := rule("", "configmaps", "get", "list", "watch")
	role := func(namespace string, rules ...rbacv1.PolicyRule) error {
		return agent.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "grab-"}, Rules: rules})
	}
	bind := func(namespace, kind, name string, subjects ...rbacv1.Subject) error {
		return agent.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, GenerateName: "grab-"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name}, Subjects: subjects,
		})
	}
	account := func(namespace string) rbacv1.Subject {
		return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "web"}
	}
	theirs := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "theirs"}, Rules: []rbacv1.PolicyRule{rule("", "pods", "get")}}
	require.NoError(t, env.Client.Create(t.Context(), theirs))
	require.NoError(t, env.Client.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: bystander.Name, Name: "reader"}, Rules: []rbacv1.PolicyRule{reads}}))
	reader := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "reader", Annotations: map[string]string{"pipeops.io/set": ns + "/web"}}, Rules: []rbacv1.PolicyRule{reads}}

	require.NoError(t, agent.Create(t.Context(), reader), "a Role within what the agent holds")
	require.NoError(t, bind(ns, "Role", "reader", account(ns)), "for an account of its namespace")
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"rules":[{"apiGroups":["coordination.k8s.io"],"resources":["leases"],"verbs":["get","update"]}]}`))
	require.NoError(t, agent.Patch(t.Context(), reader, patch), "and it may change")
	mark := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"pipeops.io/set":"a/b"}}}`))

	for what, try := range map[string]func() error{
		"bind to a user": func() error {
			return bind(ns, "Role", "reader", rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "mallory"})
		},
		"bind to a group": func() error {
			return bind(ns, "Role", "reader", rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:authenticated"})
		},
		"bind to an account elsewhere":            func() error { return bind(ns, "Role", "reader", account(bystander.Name)) },
		"bind to one here and one elsewhere":      func() error { return bind(ns, "Role", "reader", account(ns), account("default")) },
		"bind to nobody":                          func() error { return bind(ns, "Role", "reader") },
		"bind a Role to itself":                   func() error { return bind(ns, "Role", "reader", agentSubject()) },
		"bind its own role to an account":         func() error { return bind(ns, "ClusterRole", "pipeops-agent-namespace", account(ns)) },
		"bind a wider ClusterRole to an account":  func() error { return bind(ns, "ClusterRole", "edit", account(ns)) },
		"bind a wider ClusterRole to itself":      func() error { return bind(ns, "ClusterRole", "edit", agentSubject()) },
		"bind another of its ClusterRoles":        func() error { return bind(ns, "ClusterRole", kubetest.GrantableRole, account(ns)) },
		"bind in a namespace that is not managed": func() error { return bind(bystander.Name, "Role", "reader", account(bystander.Name)) },
		"make a Role there":                       func() error { return role(bystander.Name, reads) },
		"make a Role in its own namespace":        func() error { return role(kubetest.AgentNamespace, reads) },
		"grant what it does not hold":             func() error { return role(ns, rule("", "nodes", "get")) },
		"grant rights about rights":               func() error { return role(ns, rule(rbacv1.GroupName, "rolebindings", "create")) },
		"grant its right to bind":                 func() error { return role(ns, rule(rbacv1.GroupName, "clusterroles", "bind")) },
		"grant rights about Apps":                 func() error { return role(ns, rule("pipeops.io", "apps", "get")) },
		"grant to run commands in pods":           func() error { return role(ns, rule("", "pods/exec", "create")) },
		"grant to reach pods":                     func() error { return role(ns, rule("", "pods/portforward", "create")) },
		"grant all verbs":                         func() error { return role(ns, rule("", "configmaps", "*")) },
		"change a Role of others":                 func() error { return agent.Patch(t.Context(), theirs.DeepCopy(), patch) },
		"mark a Role of others as its own":        func() error { return agent.Patch(t.Context(), theirs.DeepCopy(), mark) },
		"delete a Role of others":                 func() error { return agent.Delete(t.Context(), theirs.DeepCopy()) },
		"bind in the whole cluster": func() error {
			return agent.Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{GenerateName: "grab-"}, Subjects: []rbacv1.Subject{account(ns)},
				RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			})
		},
	} {
		err := try()
		assert.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
	}
	require.NoError(t, agent.Delete(t.Context(), reader), "its own it deletes")
}

func agentSubject() rbacv1.Subject {
	return rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: kubetest.AgentNamespace, Name: "pipeops-agent"}
}

func rule(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}
