package denylist

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// A ClusterRole may hold what its cluster's owner lets the agent hold for it, even all Secrets. It
// may not hold rights that lead to all others: the agent would hold them too.
var (
	reading = []string{"get", "list", "watch"}
	// ruling are the groups whose objects are rights, or the agent's orders.
	ruling = []string{"*", "rbac.authorization.k8s.io", ownDomain}
	// reaching are resources with which an account becomes another, or that hold all others.
	reaching = []string{"*", "*/*", "*/token", "serviceaccounts/token", "namespaces", "namespaces/finalize", "namespaces/status"}
	// impersonated are resources whose verb impersonate is in "*".
	impersonated = []string{"*", "serviceaccounts", "users", "groups"}
)

// aggregates is the prefix of the labels by which the rights of one ClusterRole become those of
// another, such as view or edit.
const aggregates = "rbac.authorization.k8s.io/aggregate-to-"

const fixClusterRole = "leave it out by the chart's values, or have the owner of the cluster install the chart with helm"

// grantedInCluster refuses a ClusterRole with rights that lead to all others. Kubernetes itself
// checks that it contains only rights that the agent has.
func grantedInCluster(u *unstructured.Unstructured) error {
	if given(u, "aggregationRule") {
		return problem.Errorf(problem.Forbidden, fixClusterRole,
			"a ClusterRole that the agent applies has no aggregationRule: it takes in any rights").WithField("aggregationRule")
	}
	for label := range notes(u.Object["metadata"], "labels") {
		if strings.HasPrefix(label, aggregates) {
			return problem.Errorf(problem.Forbidden, fixClusterRole, "a ClusterRole that the agent applies has no label %s: "+
				"it would give its rights to everyone who is bound to another ClusterRole", label).WithField("metadata.labels")
		}
	}
	for _, rule := range maps(u, "rules") {
		if word := leadsOn(rule); word != "" {
			return problem.Errorf(problem.Forbidden, fixClusterRole,
				"a ClusterRole that the agent applies does not hold %s: it leads to all other rights", word).WithField("rules")
		}
	}
	return nil
}

// leadsOn returns what of a rule leads to all rights; empty for nothing.
func leadsOn(rule map[string]any) string {
	list := func(field string) []string {
		words, _, _ := unstructured.NestedStringSlice(rule, field)
		return words
	}
	has := func(words, of []string) (string, bool) {
		for _, w := range words {
			if slices.Contains(of, w) {
				return w, true
			}
		}
		return "", false
	}
	verbs, groups, resources := list("verbs"), list("apiGroups"), list("resources")
	if verb, kept := has(verbs, []string{"bind", "escalate", "impersonate"}); kept {
		return "the verb " + verb
	}
	if !slices.ContainsFunc(verbs, func(v string) bool { return !slices.Contains(reading, v) }) {
		return ""
	}
	if group, kept := has(groups, ruling); kept {
		return "writing objects of the group " + group
	}
	if _, core := has(groups, []string{""}); core {
		if resource, kept := has(resources, reaching); kept {
			return "writing " + resource
		}
		if resource, kept := has(resources, impersonated); kept && slices.Contains(verbs, "*") {
			return "all verbs on " + resource
		}
	}
	if _, identities := has(groups, []string{"authentication.k8s.io"}); identities && slices.Contains(verbs, "*") {
		return "all verbs on authentication.k8s.io"
	}
	return ""
}

// boundInCluster refuses a ClusterRoleBinding to others than ServiceAccounts, and of a chart to
// those of other namespaces.
func boundInCluster(u *unstructured.Unstructured, subjects []map[string]any) error {
	const fix = "bind the ClusterRole to ServiceAccounts of the release's namespace, or have the owner of the cluster apply it with kubectl"
	for _, s := range subjects {
		kind, name, namespace := word(s, "kind"), word(s, "name"), word(s, "namespace")
		switch {
		case kind != "ServiceAccount":
			return problem.Errorf(problem.Forbidden, fix, "a ClusterRoleBinding that the agent applies binds ServiceAccounts alone, and a subject is %s %s",
				kind, name).WithField("subjects")
		case u.GetNamespace() != "" && namespace != u.GetNamespace():
			return problem.Errorf(problem.Forbidden, fix, "the release is in namespace %q, and the subject ServiceAccount %s in %q",
				u.GetNamespace(), name, namespace).WithField("subjects")
		}
	}
	return nil
}
