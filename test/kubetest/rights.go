package kubetest

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/deployments"
)

// Roles of manifest-rights.yaml that hold in one namespace at a time.
const (
	ManifestRole  = "pipeops-agent-manifests"
	GrantableRole = "pipeops-agent-grantable"
)

// Entitle gives the agent roles of manifest-rights.yaml in a namespace, and returns when they hold.
func (e *Env) Entitle(t *testing.T, namespace string, roles ...string) {
	t.Helper()
	rights, _, found := bytes.Cut(deployments.ManifestRights(), []byte("---\n# These hold in the whole cluster."))
	require.True(t, found, "manifest-rights.yaml has a part for the whole cluster")
	for document := range bytes.SplitSeq(rights, []byte("---\n")) {
		if !bytes.Contains(document, []byte("\nkind: ClusterRole\n")) {
			continue
		}
		_, err := e.Cluster.KubectlWith(t.Context(), string(document), "apply", "--server-side", "-f", "-")
		require.NoError(t, err)
	}
	for _, role := range roles {
		require.NoError(t, e.Client.Create(t.Context(), &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: AgentNamespace, Name: account}},
		}))
		right := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "patch", Group: rbacv1.GroupName, Resource: "roles"}
		if role == GrantableRole {
			right = authorizationv1.ResourceAttributes{Namespace: namespace, Verb: "watch", Group: "coordination.k8s.io", Resource: "leases"}
		}
		e.awaitRight(t, right)
	}
}
