package denylist

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// The groups that contain the agent's ServiceAccount.
var everybody = map[string]bool{"system:serviceaccounts": true, "system:authenticated": true}

// role refuses an object that would change the agent's own rights, let the agent change them, or
// grant rights that the agent never grants. The agent's admission policy
// (deployments/agent/policy.yaml) enforces the same. This check comes before any action, and also
// holds without that policy.
func (a Agent) role(u *unstructured.Unstructured) error {
	if strings.HasPrefix(u.GetName(), objectmeta.FieldManager) || strings.HasPrefix(u.GetName(), "system:") ||
		strings.HasPrefix(text(u, "roleRef", "name"), objectmeta.FieldManager) {
		return never("roles of that name are those that the agent keeps for its own rights, or Kubernetes'")
	}
	subjects := maps(u, "subjects")
	if slices.ContainsFunc(subjects, func(s map[string]any) bool { return a.isAgent(s, u.GetNamespace()) }) {
		return never("it would give rights to the agent itself")
	}
	switch u.GetKind() {
	case "Role":
		return granted(u)
	case "RoleBinding":
		return bound(u, subjects)
	case "ClusterRole":
		return grantedInCluster(u)
	case "ClusterRoleBinding":
		return boundInCluster(u, subjects)
	}
	return nil
}

// isAgent reports whether a subject of a binding in a namespace, or in none, is the agent.
func (a Agent) isAgent(subject map[string]any, namespace string) bool {
	account := cmp.Or(a.ServiceAccount, objectmeta.FieldManager)
	name := word(subject, "name")
	switch word(subject, "kind") {
	case "ServiceAccount":
		return cmp.Or(word(subject, "namespace"), namespace) == a.Namespace
	case "User":
		return name == "system:serviceaccount:"+a.Namespace+":"+account
	case "Group":
		return everybody[name] || name == "system:serviceaccounts:"+a.Namespace
	}
	return false
}

// bound refuses a RoleBinding to subjects outside its own namespace.
func bound(u *unstructured.Unstructured, subjects []map[string]any) error {
	const fix = "bind a Role to ServiceAccounts of the RoleBinding's own namespace, or have the owner of the cluster apply it with kubectl"
	kind := text(u, "roleRef", "kind")
	if kind == "" { // an inventory's entry has only a name; the API server accepts no such manifest
		return nil
	}
	if kind != "Role" {
		return problem.Errorf(problem.Forbidden, fix, "a RoleBinding that the agent applies binds a Role of its namespace, and roleRef names %s %s",
			kind, text(u, "roleRef", "name")).WithField("roleRef.kind")
	}
	if len(subjects) == 0 {
		return problem.Errorf(problem.Invalid, fix, "the RoleBinding has no subjects").WithField("subjects")
	}
	for _, s := range subjects {
		kind, name := word(s, "kind"), word(s, "name")
		namespace := cmp.Or(word(s, "namespace"), u.GetNamespace()) // as the API server's authorizer has it
		switch {
		case kind != "ServiceAccount":
			return problem.Errorf(problem.Forbidden, fix, "a RoleBinding that the agent applies binds ServiceAccounts alone, and a subject is %s %s",
				kind, name).WithField("subjects")
		case namespace != u.GetNamespace():
			return problem.Errorf(problem.Forbidden, fix, "the RoleBinding is in namespace %q, and the subject ServiceAccount %s in %q",
				u.GetNamespace(), name, namespace).WithField("subjects")
		}
	}
	return nil
}

// Rights that the agent has, or may have, and never grants. With them an account could bind rights
// to any subject, make the agent deploy, or reach into pods past the policy.
var (
	keptVerbs     = []string{"*", "bind", "escalate", "impersonate"}
	keptGroups    = []string{"*", "rbac.authorization.k8s.io", ownDomain}
	keptResources = []string{
		"serviceaccounts/token", "pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy",
	}
)

// granted refuses a Role with rights that the agent never grants. Kubernetes itself checks that the
// Role contains only rights that the agent has.
func granted(u *unstructured.Unstructured) error {
	for _, rule := range maps(u, "rules") {
		for _, of := range []struct {
			field string
			kept  []string
		}{{"verbs", keptVerbs}, {"apiGroups", keptGroups}, {"resources", keptResources}} {
			given, _, _ := unstructured.NestedStringSlice(rule, of.field)
			for _, word := range given {
				if slices.Contains(of.kept, word) || of.field == "resources" && strings.Contains(word, "*") {
					return problem.Errorf(problem.Forbidden, "leave it out, or have the owner of the cluster apply the Role with kubectl",
						"a Role that the agent applies grants no %q among its %s", word, of.field).WithField("rules")
				}
			}
		}
	}
	return nil
}

// maps returns the entries of a list that are maps.
func maps(u *unstructured.Unstructured, field string) (entries []map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, field)
	for _, entry := range list {
		if m, ok := entry.(map[string]any); ok {
			entries = append(entries, m)
		}
	}
	return entries
}

func word(m map[string]any, field string) string {
	s, _ := m[field].(string)
	return s
}
