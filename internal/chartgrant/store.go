package chartgrant

import (
	"context"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Store keeps grants as roles in the cluster, with its owner's rights.
type Store struct {
	Client dynamic.Interface
	// Namespace and ServiceAccount are the agent's.
	Namespace, ServiceAccount string
}

// The metadata of a grant's roles.
const (
	grantLabel        = "pipeops.io/grant"
	grantOfChart      = "chart"
	releaseAnnotation = "pipeops.io/grant-release" // NAMESPACE/NAME
	chartAnnotation   = "pipeops.io/grant-chart"   // NAME VERSION DIGEST
	runnersAnnotation = "pipeops.io/grant-runners"
	fieldManager      = "pipeops-agent-chart-allow"
)

func rbac(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: rbacv1.GroupName, Version: "v1", Resource: resource}
}

// prefix is one that no object of a set or a chart may have.
const prefix = objectmeta.FieldManager + ":chart:"

// roleName returns the name of a grant's roles and bindings.
func roleName(key runnerapi.Key) string { return prefix + key.Namespace + ":" + key.Name }

// part is an object of a grant.
type part struct {
	resource  schema.GroupVersionResource
	namespace string
	object    runtime.Object
}

func (s Store) parts(g Grant) []part {
	meta := metav1.ObjectMeta{
		Name: roleName(g.Key), Labels: map[string]string{grantLabel: grantOfChart},
		Annotations: map[string]string{
			releaseAnnotation: g.Key.String(), chartAnnotation: strings.Join([]string{g.Chart.Name, g.Chart.Version, g.Chart.Digest}, " "),
			runnersAnnotation: strings.Join(g.Runners, " "),
		},
	}
	local := meta
	local.Namespace = g.Key.Namespace
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.Namespace, Name: s.ServiceAccount}}
	kind := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kind}
	}
	ref := func(kind string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: meta.Name}
	}
	return []part{
		{rbac("clusterroles"), "", &rbacv1.ClusterRole{TypeMeta: kind("ClusterRole"), ObjectMeta: meta, Rules: g.rules(true)}},
		{rbac("clusterrolebindings"), "", &rbacv1.ClusterRoleBinding{TypeMeta: kind("ClusterRoleBinding"), ObjectMeta: meta, RoleRef: ref("ClusterRole"), Subjects: subjects}},
		{rbac("roles"), g.Key.Namespace, &rbacv1.Role{TypeMeta: kind("Role"), ObjectMeta: local, Rules: g.rules(false)}},
		{rbac("rolebindings"), g.Key.Namespace, &rbacv1.RoleBinding{TypeMeta: kind("RoleBinding"), ObjectMeta: local, RoleRef: ref("Role"), Subjects: subjects}},
	}
}

// rules returns the rules of the whole cluster, or those of the namespace, each once.
func (g Grant) rules(cluster bool) []rbacv1.PolicyRule {
	rules, seen := []rbacv1.PolicyRule{}, map[string]bool{}
	for _, r := range g.Rights {
		if text := r.String(); r.Cluster == cluster && !seen[text] {
			seen[text] = true
			rules = append(rules, r.PolicyRule)
		}
	}
	return rules
}

// Managed refuses a namespace that the agent does not manage.
func (s Store) Managed(ctx context.Context, namespace string) error {
	u, err := s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Get(ctx, namespace, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return translated(err, "reading namespace "+namespace)
	}
	if err != nil || !objectmeta.IsManaged(u) {
		return problem.Errorf(runnerapi.CodeNamespaceNotManaged, "have a Runner make it: pipeops-runner namespace create AGENT "+namespace,
			"the agent does not manage namespace %s", namespace).WithField("namespace")
	}
	return nil
}

// Put gives the agent the rights of a grant, in place of an earlier one for the release.
func (s Store) Put(ctx context.Context, g Grant) error {
	for _, p := range s.parts(g) {
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p.object)
		if err != nil {
			return err
		}
		u := &unstructured.Unstructured{Object: raw}
		_, err = s.at(p).Apply(ctx, u.GetName(), u, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
		if err != nil {
			return translated(err, "writing "+u.GetKind()+" "+u.GetName())
		}
	}
	return nil
}

// at returns the client of a part's resource.
func (s Store) at(p part) dynamic.ResourceInterface {
	if p.namespace == "" {
		return s.Client.Resource(p.resource)
	}
	return s.Client.Resource(p.resource).Namespace(p.namespace)
}

// Delete takes the rights of a release's grant back. It reports whether there were any.
func (s Store) Delete(ctx context.Context, key runnerapi.Key) (bool, error) {
	parts, found := s.parts(Grant{Key: key}), false
	slices.Reverse(parts) // bindings before their roles
	for _, p := range parts {
		err := s.at(p).Delete(ctx, roleName(key), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return found, translated(err, "deleting "+p.resource.Resource+" "+roleName(key))
		}
		found = found || err == nil
	}
	return found, nil
}

// List returns the grants, without their rights and rules.
func (s Store) List(ctx context.Context) ([]Grant, error) {
	list, err := s.Client.Resource(rbac("clusterroles")).List(ctx, metav1.ListOptions{LabelSelector: grantLabel + "=" + grantOfChart})
	if err != nil {
		return nil, translated(err, "listing ClusterRoles")
	}
	var all []Grant
	for _, u := range list.Items {
		notes := u.GetAnnotations()
		namespace, name, _ := strings.Cut(notes[releaseAnnotation], "/")
		chart := append(strings.Fields(notes[chartAnnotation]), "", "", "")
		all = append(all, Grant{
			Key: runnerapi.Key{Namespace: namespace, Name: name}, Runners: strings.Fields(notes[runnersAnnotation]),
			Chart: policy.Chart{Name: chart[0], Version: chart[1], Digest: chart[2]},
		})
	}
	slices.SortFunc(all, func(a, b Grant) int { return strings.Compare(a.Key.String(), b.Key.String()) })
	return all, nil
}

// Rules implements RoleReader.
func (s Store) Rules(ctx context.Context, namespace, name string) ([]rbacv1.PolicyRule, error) {
	p := part{resource: rbac("clusterroles")}
	if namespace != "" {
		p = part{resource: rbac("roles"), namespace: namespace}
	}
	u, err := s.at(p).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, translated(err, "reading "+p.resource.Resource+" "+name)
	}
	role := rbacv1.ClusterRole{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return role.Rules, nil
}

// translated returns an error of the Kubernetes API. The rights that lack are the caller's.
func translated(err error, doing string) error {
	if apierrors.IsForbidden(err) {
		return problem.Errorf(problem.Forbidden, "use a kubeconfig of the cluster's owner: --kubeconfig", "%s is forbidden: %v", doing, err)
	}
	return kubeproblem.From(err, doing)
}
