package input

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// role has what a role or a binding of Kubernetes' RBAC grants.
type role struct {
	Rules       []rbacv1.PolicyRule     `json:"rules"`
	Aggregation *rbacv1.AggregationRule `json:"aggregationRule"`
	RoleRef     *rbacv1.RoleRef         `json:"roleRef"`
}

// rights returns a digest of what a role or binding grants; empty for other objects. It does not
// depend on how the object is written.
func rights(u *unstructured.Unstructured) (string, error) {
	if u.GroupVersionKind().Group != rbacv1.GroupName || !strings.Contains(u.GetKind(), "Role") {
		return "", nil
	}
	var r role
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &r); err != nil {
		return "", unreadable("rules", "cannot be read as those of a role")
	}
	text, err := json.Marshal(r)
	sum := sha256.Sum256(text)
	return "sha256:" + hex.EncodeToString(sum[:]), err
}
