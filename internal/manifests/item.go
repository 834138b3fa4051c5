package manifests

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// item is one object of a set on its way.
type item struct {
	object  *unstructured.Unstructured
	mapping *meta.RESTMapping
	where   string                 // document and line
	brings  runnerapi.ObjectIntent // what the policy bounds of it
	pending bool                   // its kind, namespace or role comes with the set: it cannot be asked about before
	// redefined means that the definition of its kind changes with the set, and the cluster refuses
	// the object by the old one.
	redefined bool
	live      *unstructured.Unstructured // as it is in the cluster; nil for not there
	out       runnerapi.AppliedObject
}

func refOf(u *unstructured.Unstructured) Ref {
	return Ref{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}

// kindOf returns a kind as a policy names it.
func kindOf(r Ref) string {
	group := groupOf(r)
	if group == "" {
		return r.Kind
	}
	return r.Kind + "." + group
}

func groupOf(r Ref) string {
	group, _, found := strings.Cut(r.APIVersion, "/")
	if !found {
		return ""
	}
	return group
}

// hasRoleOf reports whether a binding's role is among the items: the API server reads the role to
// check what the binding grants, also in a dry run.
func hasRoleOf(items []*item, i *item) bool {
	kind := kindOf(i.out.ManifestRef)
	if kind != kindRoleBinding && kind != kindClusterRoleBinding {
		return false
	}
	role := Ref{APIVersion: groupOf(i.out.ManifestRef), Kind: nested(i.object, "roleRef", "kind"), Name: nested(i.object, "roleRef", "name")}
	if role.Kind == "Role" {
		role.Namespace = i.out.Namespace
	}
	return slices.ContainsFunc(items, func(other *item) bool { return same(other.out.ManifestRef) == role })
}

func gvkOf(r Ref) schema.GroupVersionKind { return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind) }

// same returns what makes two references mean one object: its version does not.
func same(r Ref) Ref {
	return Ref{APIVersion: groupOf(r), Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// fail notes why an object could not be applied or deleted.
func (i *item) fail(err error) {
	i.out.Action, i.out.Problem, i.out.State = runnerapi.ApplyFailed, asProblem(err), ""
}

// order is in which kinds are applied, and in the other direction deleted: what others
// need first, what stands in others' way last. Kinds that are not named stand in the
// middle, before those that may use them.
var order = map[string]int{
	kindCRD: -100, kindNamespace: -90, "PriorityClass.scheduling.k8s.io": -80, "StorageClass.storage.k8s.io": -80,
	"ResourceQuota": -70, "LimitRange": -70, "NetworkPolicy.networking.k8s.io": -70,
	"ServiceAccount": -60, kindClusterRole: -50, kindClusterRoleBinding: -49, kindRole: -48, kindRoleBinding: -47,
	kindSecret: -40, "ConfigMap": -40, "PersistentVolume": -30, "PersistentVolumeClaim": -29, "Service": -20,
	"Deployment.apps": 10, "StatefulSet.apps": 10, "DaemonSet.apps": 10, "ReplicaSet.apps": 10, "Pod": 10, "ReplicationController": 10,
	"Job.batch": 20, "CronJob.batch": 20, "HorizontalPodAutoscaler.autoscaling": 30, "PodDisruptionBudget.policy": 30, "Ingress.networking.k8s.io": 40,
}

// inOrder sorts a copy.
func inOrder(items []*item) []*item {
	sorted := slices.Clone(items)
	slices.SortStableFunc(sorted, func(a, b *item) int {
		return cmp.Compare(order[kindOf(a.out.ManifestRef)], order[kindOf(b.out.ManifestRef)])
	})
	return sorted
}

// refusal returns the error of a call of which nothing was done: it names what could not be read,
// and each object that is refused.
func (r *run) refusal() error {
	var all []error
	if r.opts.Unread != nil {
		all = append(all, r.opts.Unread)
	}
	for _, i := range refused(slices.Concat(r.given, r.left)) {
		all = append(all, i.out.Problem)
	}
	return problem.Together(all)
}

// refused returns those with a problem.
func refused(items []*item) (failed []*item) {
	for _, i := range items {
		if i.out.Problem != nil {
			failed = append(failed, i)
		}
	}
	return failed
}

// located adds to a problem the object that it is about, and where that was read. The problem's
// field is one of the object's.
func (i *item) located(err error) error {
	p := *asProblem(err)
	if name, ok := strings.CutPrefix(p.Field, "path."); ok {
		p.Field = "metadata." + name
	}
	at := i.out.String()
	if i.where != "" {
		at = i.where + ": " + at
	}
	if p.Field != "" {
		at += ": " + p.Field
	}
	p.Detail, p.Field, p.Location = at+": "+p.Detail, cmp.Or(p.Field, "body"), cmp.Or(i.where, i.out.String())
	return &p
}
