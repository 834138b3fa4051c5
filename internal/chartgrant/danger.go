package chartgrant

import (
	"slices"
	"strings"
)

// dangers are resources whose rights reach further than their names say.
var dangers = []struct {
	group     string
	resources []string
	writes    bool // only rights to write
	what      string
}{
	{"", []string{"secrets"}, false, "reads Secrets"},
	{"", []string{"pods/exec", "pods/attach", "pods/portforward", "pods/proxy", "services/proxy"}, false, "reaches into pods"},
	{"", []string{"nodes/proxy"}, false, "reaches into all pods by their nodes"},
	{"", []string{"nodes", "persistentvolumes"}, true, "changes nodes or volumes"},
	{"", []string{"pods", "pods/ephemeralcontainers", "replicationcontrollers"}, true, "runs pods"},
	{"apps", []string{"deployments", "statefulsets", "daemonsets", "replicasets"}, true, "runs pods"},
	{"batch", []string{"jobs", "cronjobs"}, true, "runs pods"},
	{"admissionregistration.k8s.io", nil, true, "changes admission"},
	{"apiregistration.k8s.io", nil, true, "serves API groups"},
	{"certificates.k8s.io", nil, true, "makes identities"},
	{"apiextensions.k8s.io", nil, true, "changes definitions of kinds"},
}

// On returns what the right is about: RESOURCE.GROUP, or a path.
func (r Right) On() string {
	all := slices.Clone(r.NonResourceURLs)
	for _, group := range r.APIGroups {
		for _, resource := range r.Resources {
			all = append(all, strings.TrimSuffix(resource+"."+group, "."))
		}
	}
	return strings.Join(all, ",")
}

// Danger returns why an owner should look twice at a right that a chart's role holds; empty for
// others. What leads to all other rights is in no grant.
func (r Right) Danger() string {
	var all []string
	add := func(what string) {
		if !slices.Contains(all, what) {
			all = append(all, what)
		}
	}
	if slices.Contains(r.Verbs, "*") || slices.Contains(r.APIGroups, "*") || slices.ContainsFunc(r.Resources, func(s string) bool { return strings.Contains(s, "*") }) {
		add("wildcard")
	}
	writes := slices.ContainsFunc(r.Verbs, func(v string) bool { return v != "get" && v != "list" && v != "watch" })
	for _, d := range dangers {
		in := slices.Contains(r.APIGroups, d.group) || slices.Contains(r.APIGroups, "*")
		if in && (writes || !d.writes) && (d.resources == nil || slices.ContainsFunc(r.Resources, func(s string) bool { return s == "*" || slices.Contains(d.resources, s) })) {
			add(d.what)
		}
	}
	return strings.Join(all, ", ")
}
