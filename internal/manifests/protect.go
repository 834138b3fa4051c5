package manifests

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Kinds that are treated apart, as a policy names them.
const (
	kindCRD                = "CustomResourceDefinition.apiextensions.k8s.io"
	kindNamespace          = "Namespace"
	kindSecret             = "Secret"
	kindRole               = "Role.rbac.authorization.k8s.io"
	kindRoleBinding        = "RoleBinding.rbac.authorization.k8s.io"
	kindClusterRole        = "ClusterRole.rbac.authorization.k8s.io"
	kindClusterRoleBinding = "ClusterRoleBinding.rbac.authorization.k8s.io"
)

// protect refuses what no policy can allow. Sets make namespaces where the agent may.
func (a *Applier) protect(u *unstructured.Unstructured) error {
	b := denylist.Agent{Namespace: a.config.Namespace, ServiceAccount: a.config.ServiceAccount}
	if err := b.Check(u); err != nil {
		return err
	}
	if kindOf(refOf(u)) == kindNamespace && (len(a.config.Namespaces) > 0 || a.config.Manage == nil) {
		return problem.Errorf(problem.Forbidden, "ask the owner of the cluster for it", "this agent is limited to some namespaces and makes none")
	}
	return nil
}

func nested(u *unstructured.Unstructured, fields ...string) string {
	text, _, _ := unstructured.NestedString(u.Object, fields...)
	return text
}
