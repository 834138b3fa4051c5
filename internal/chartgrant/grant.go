// Package chartgrant is what the cluster's owner grants so that a Runner can deploy one version of
// one chart that brings ClusterRoles or other objects of the whole cluster. A grant has two parts.
// The agent gets the rights that the chart's roles hold, because Kubernetes lets no client pass on
// a right that it lacks. The owner's policy gets a rule about that release and chart.
//
// The agent never has these rights to write grants: its owner's command does.
package chartgrant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Grant lets Runners deploy a chart as a release.
type Grant struct {
	Key     runnerapi.Key // of the release
	Runners []string
	Chart   policy.Chart
	Rule    policy.Rule // of the owner's policy
	Rights  []Right     // that the agent gets
}

// Right is a right that the agent gets.
type Right struct {
	rbacv1.PolicyRule
	// Cluster is set for a right in the whole cluster; others are of the release's namespace.
	Cluster bool
	// For names what needs the right: a role of the chart, or objects that it makes.
	For string
}

// RoleReader returns the rules of a role that the chart does not bring but binds. The namespace is
// empty for a ClusterRole.
type RoleReader func(ctx context.Context, namespace, name string) ([]rbacv1.PolicyRule, error)

// commands are those that a grant allows. A rollback does not know the digest of its chart.
var commands = []string{"put-release", "delete-release", "get-release", "list-release-history"}

// New returns the grant for a chart as it was rendered.
func New(ctx context.Context, key runnerapi.Key, runners []string, p helm.Preview, read RoleReader) (Grant, error) {
	g := Grant{Key: key, Runners: runners, Chart: policy.Chart{Name: p.Chart.Name, Version: p.Chart.Version, Digest: p.Chart.Digest}}
	for _, o := range p.Objects {
		passed, err := passedOn(ctx, o, p.Objects, key.Namespace, read)
		if err != nil {
			return Grant{}, err
		}
		g.Rights = append(g.Rights, passed...)
	}
	g.Rights = append(g.Rights, makes(p.Objects)...)
	g.Rule = policy.Rule{
		Name: RuleName(key), Runners: runners, Namespaces: []string{key.Namespace}, Commands: commands, Releases: []string{key.Name},
		Charts: []policy.Chart{g.Chart}, Kinds: kinds(p.Objects), Rights: rights(p.Objects), Annotations: annotations(p.Objects),
	}
	if slices.Contains(p.Lookups, "Secret") {
		g.Rule.Lookups = p.Lookups
	}
	return g, nil
}

// RuleName returns the name of a grant's rule in the policy.
func RuleName(key runnerapi.Key) string {
	return policy.RuleName("chart " + key.Namespace + " " + key.Name)
}

// passedOn returns the rights that the agent passes on when it makes an object.
func passedOn(ctx context.Context, o helm.PreviewObject, all []helm.PreviewObject, namespace string, read RoleReader) ([]Right, error) {
	if o.GroupVersionKind().Group != rbacv1.GroupName {
		return nil, nil
	}
	cluster := strings.HasPrefix(o.GetKind(), "Cluster")
	name := o.GetKind() + " " + o.GetName()
	switch o.GetKind() {
	case "Role", "ClusterRole":
		role := rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return rightsOf(role.Rules, cluster, name), nil
	}
	binding := rbacv1.ClusterRoleBinding{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	ref := binding.RoleRef
	if slices.ContainsFunc(all, func(r helm.PreviewObject) bool { return r.GetKind() == ref.Kind && r.GetName() == ref.Name }) {
		return nil, nil // its rights are there already
	}
	in := namespace
	if ref.Kind == "ClusterRole" {
		in = ""
	}
	rules, err := read(ctx, in, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("%s binds %s %s: %w", name, ref.Kind, ref.Name, err)
	}
	if err := grantable(ref.Name, rules); err != nil {
		return nil, fmt.Errorf("%s binds %s %s: %w", name, ref.Kind, ref.Name, err)
	}
	return rightsOf(rules, cluster, ref.Kind+" "+ref.Name), nil
}

// grantable refuses the rules of a role that the chart binds, as a ClusterRole of the chart with
// these rules is refused.
func grantable(name string, rules []rbacv1.PolicyRule) error {
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}, ObjectMeta: metav1.ObjectMeta{Name: "of-" + name}, Rules: rules,
	})
	if err != nil {
		return err
	}
	return denylist.Agent{}.Check(&unstructured.Unstructured{Object: raw})
}

func rightsOf(rules []rbacv1.PolicyRule, cluster bool, role string) []Right {
	all := make([]Right, len(rules))
	for i, r := range rules {
		all[i] = Right{r, cluster, role}
	}
	return all
}

// makes returns the rights with which the agent makes the chart's objects. RBAC cannot name what is
// created; the agent's admission policy does that for roles.
func makes(objects []helm.PreviewObject) (all []Right) {
	named := map[schema.GroupResource][]string{}
	local := map[schema.GroupResource]bool{}
	for _, o := range objects {
		switch {
		case o.Namespaced:
			local[o.Resource] = true
		case !slices.Contains(named[o.Resource], o.GetName()):
			named[o.Resource] = append(named[o.Resource], o.GetName())
		}
	}
	const what = "making the chart's objects"
	of := func(r schema.GroupResource, names []string, verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{r.Group}, Resources: []string{r.Resource}, ResourceNames: names, Verbs: verbs}
	}
	for _, r := range sorted(named) {
		slices.Sort(named[r])
		all = append(all, Right{of(r, nil, "create"), true, what}, Right{of(r, named[r], "get", "patch", "delete"), true, what})
	}
	for _, r := range sorted(local) {
		all = append(all, Right{of(r, nil, "get", "create", "patch", "delete"), false, what})
	}
	return all
}

func sorted[V any](m map[schema.GroupResource]V) []schema.GroupResource {
	return slices.SortedFunc(maps.Keys(m), func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
}

// kinds returns what the rule's kinds are: objects of the whole cluster by their names.
func kinds(objects []helm.PreviewObject) []string {
	all := map[string]bool{}
	for _, o := range objects {
		kind := o.Brings.Kind
		if !o.Namespaced {
			kind += "/" + o.GetName()
		}
		all[kind] = true
	}
	return slices.Sorted(maps.Keys(all))
}

// rights returns what the rule's rights are: with other values, a chart may ask for others.
func rights(objects []helm.PreviewObject) []string {
	all := map[string]bool{}
	for _, o := range objects {
		if o.Brings.Rights != "" {
			all[o.Brings.Rights] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

func annotations(objects []helm.PreviewObject) []string {
	all := map[string]bool{}
	for _, o := range objects {
		for _, a := range o.Brings.Annotations {
			if !policy.Harmless(a.Name) {
				all[a.Name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}
