package kubetest

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// agentSuffix ends the name of a test agent's namespace.
const agentSuffix = "-agent"

// AgentOf returns the namespace of the agent that manages a namespace from Namespace.
func AgentOf(namespace string) string { return namespace + agentSuffix }

// Namespace creates a namespace that an agent of the test's own manages, and one for that agent's
// lease and records. An agent that is limited to the first does not see those of other tests, so
// they run side by side. Namespace returns once the agent's rights are in force.
func (e *Env) Namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Labels: objectmeta.Labels()}}
	require.NoError(t, e.Client.Create(t.Context(), ns))
	e.bind(t, ns.Name, "ClusterRole", "pipeops-agent-namespace")
	e.makeAgentNamespace(t, AgentOf(ns.Name))
	e.awaitRight(t, authorizationv1.ResourceAttributes{
		Namespace: ns.Name, Verb: "create", Group: "pipeops.io", Resource: "apps",
	})
	e.awaitRight(t, authorizationv1.ResourceAttributes{
		Namespace: AgentOf(ns.Name), Verb: "create", Group: "coordination.k8s.io", Resource: "leases",
	})
	return ns.Name
}

// makeAgentNamespace gives the agent in a namespace the rights that the manifest gives it in its
// own.
func (e *Env) makeAgentNamespace(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, e.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	role := &rbacv1.Role{}
	require.NoError(t, e.Client.Get(t.Context(), client.ObjectKey{Namespace: AgentNamespace, Name: account}, role))
	role.ObjectMeta = metav1.ObjectMeta{Namespace: name, Name: account}
	require.NoError(t, e.Client.Create(t.Context(), role))
	e.bind(t, name, "Role", account)
}

// bind gives the agent a role in a namespace.
func (e *Env) bind(t *testing.T, namespace, kind, role string) {
	t.Helper()
	require.NoError(t, e.Client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: AgentNamespace, Name: account}},
	}))
}

// awaitRight waits until the API server grants the agent a right: it hears of new roles with a
// delay.
func (e *Env) awaitRight(t *testing.T, right authorizationv1.ResourceAttributes) {
	t.Helper()
	what := strings.Join([]string{"the agent may", right.Verb, right.Resource, "in", right.Namespace}, " ")
	await.Until(t, what, func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: e.Agent.Impersonate.UserName, Groups: e.Agent.Impersonate.Groups, ResourceAttributes: &right,
		}}
		require.NoError(t, e.Client.Create(t.Context(), review))
		return review.Status.Allowed
	})
}
