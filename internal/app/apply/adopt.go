package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// adopts reports whether the App was asked to take over this exact object.
func adopts(a *v1alpha1.App, kind string, o metav1.Object) bool {
	return o.GetUID() != "" && workload.AdoptionOf(a).Objects[workload.KindPath(kind, o.GetName())] == o.GetUID()
}

// Adopt records on the App which objects with its names it takes over. First it verifies that it
// can: the objects have no other owner, and the cluster accepts the change (a dry run).
func (p *Applier) Adopt(ctx context.Context, a *v1alpha1.App) error {
	noted := workload.Adoption{Objects: map[string]types.UID{}}
	before := workload.AdoptionOf(a)
	maps.Copy(noted.Objects, before.Objects)
	noted.Selector, noted.Service, noted.ServiceName = before.Selector, before.Service, before.ServiceName
	children, err := workload.Children(a)
	if err != nil {
		return err
	}
	var found []client.Object
	for _, child := range children {
		have, err := p.liveChild(ctx, child)
		if err != nil {
			return err
		}
		if have == nil || metav1.IsControlledBy(have, a) {
			continue
		}
		if err := p.adoptable(ctx, a, child, have); err != nil {
			return err
		}
		note(&noted, child, have)
		found = append(found, have)
	}
	if len(found) == 0 {
		return nil
	}
	text, err := json.Marshal(noted)
	if err != nil {
		return fmt.Errorf("encode what App %s adopts: %w", a.Key(), err)
	}
	metav1.SetMetaDataAnnotation(&a.ObjectMeta, objectmeta.Adopted, string(text))
	return p.tryAdoption(ctx, a, found)
}

// note records that an App takes over an object.
func note(n *workload.Adoption, child, have client.Object) {
	n.Objects[workload.KindPath(workload.KindOf(child), have.GetName())] = have.GetUID()
	switch o := have.(type) {
	case *appsv1.StatefulSet:
		n.ServiceName = &o.Spec.ServiceName
	case *corev1.Service:
		n.Service = o.Spec.Selector
	}
	if s := selectorIn(have); s != nil {
		n.Selector = s.MatchLabels
	}
}

// liveChild returns what the API server has under a child's name, or nil.
func (p *Applier) liveChild(ctx context.Context, child client.Object) (client.Object, error) {
	have, err := sameType(child)
	if err != nil {
		return nil, err
	}
	err = p.store.Live.Get(ctx, client.ObjectKeyFromObject(child), have)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s %s: %w", workload.KindOf(child), child.GetName(), err)
	}
	return have, nil
}

// selectorIn returns a workload's selector; nil for an object without one.
func selectorIn(o client.Object) *metav1.LabelSelector {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return w.Spec.Selector
	case *appsv1.StatefulSet:
		return w.Spec.Selector
	case *appsv1.DaemonSet:
		return w.Spec.Selector
	}
	return nil
}

// adoptable refuses an object with another owner, and an object that an App cannot be.
func (p *Applier) adoptable(ctx context.Context, a *v1alpha1.App, child, have client.Object) error {
	kind := workload.KindOf(child)
	if err := ownedByOthers(a, kind, have); err != nil {
		return err
	}
	refuse := func(fix, why string, args ...any) error {
		return problem.Errorf(problem.Conflict, fix, "%s %q cannot be adopted: %s", kind, have.GetName(), fmt.Sprintf(why, args...)).WithField("query.adopt")
	}
	if !have.GetDeletionTimestamp().IsZero() {
		return refuse("wait until it is gone, and deploy again", "it is being deleted")
	}
	switch o := have.(type) {
	case *batchv1.Job:
		return refuse("give the App another name, or delete the Job", "a Job has run, or is running, and cannot be changed")
	case *corev1.Service:
		return p.adoptableService(ctx, a, o, refuse)
	}
	return adoptableSelector(a, selectorIn(have), refuse)
}

type refusing func(fix, why string, args ...any) error

// adoptableService refuses a Service that would not lead to the App's pods, or that the App's
// Service cannot be.
func (p *Applier) adoptableService(ctx context.Context, a *v1alpha1.App, o *corev1.Service, refuse refusing) error {
	if o.Name != a.Name || o.Spec.Type != corev1.ServiceTypeClusterIP || o.Spec.ClusterIP == corev1.ClusterIPNone || len(o.Spec.Selector) == 0 {
		return refuse("give the App another name, or deploy it without ports", "an App's Service is of type ClusterIP, with an address and a selector")
	}
	labels := maps.Clone(a.Spec.PodLabels)
	workload, err := p.liveChild(ctx, workload.Unpatched(a)[0])
	if err != nil {
		return err
	}
	if workload != nil {
		if s := selectorIn(workload); s != nil {
			labels = merged(labels, s.MatchLabels)
		}
	}
	labels = merged(labels, objectmeta.AppLabels(a.Name))
	for _, key := range slices.Sorted(maps.Keys(o.Spec.Selector)) {
		if labels[key] != o.Spec.Selector[key] {
			return refuse("add the label to podLabels in the App's spec",
				"it selects pods by %s=%s, and the App's pods lack this label", key, o.Spec.Selector[key])
		}
	}
	return nil
}

// adoptableSelector refuses a selector that cannot match the App's pods: Kubernetes does not allow
// changing it.
func adoptableSelector(a *v1alpha1.App, s *metav1.LabelSelector, refuse refusing) error {
	if s == nil {
		return nil
	}
	if len(s.MatchExpressions) > 0 {
		return refuse("give the App another name", "its selector has matchExpressions, cannot be changed, and an App selects by labels alone")
	}
	own := objectmeta.AppLabels(a.Name)
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		want := s.MatchLabels[key]
		if set, ours := own[key]; ours && set != want {
			return refuse("give the App another name", "its selector wants %s=%s, cannot be changed, and the agent sets that label to %s", key, want, set)
		}
		if set, given := a.Spec.PodLabels[key]; given && set != want {
			return refuse("correct podLabels in the App's spec", "its selector wants %s=%s, cannot be changed, and podLabels says %s", key, want, set)
		}
	}
	return nil
}

func merged(into, from map[string]string) map[string]string {
	out := map[string]string{}
	maps.Copy(out, into)
	maps.Copy(out, from)
	return out
}

// tryAdoption checks by a dry run whether the API server accepts all changes.
func (p *Applier) tryAdoption(ctx context.Context, a *v1alpha1.App, found []client.Object) error {
	a = a.DeepCopy()
	a.UID = cmp.Or(a.UID, types.UID("00000000-0000-0000-0000-000000000000"))
	children, err := workload.Children(a)
	if err != nil {
		return err
	}
	for _, child := range children {
		for _, have := range found {
			if workload.KindOf(have) != workload.KindOf(child) || have.GetName() != child.GetName() {
				continue
			}
			patch, err := becoming(child, have)
			if err != nil {
				return err
			}
			if err := p.store.Live.Patch(ctx, have.DeepCopyObject().(client.Object), patch, client.DryRunAll, client.FieldOwner(objectmeta.FieldManager)); err != nil {
				return fmt.Errorf("try to adopt %s %s: %w", workload.KindOf(child), child.GetName(), err)
			}
		}
	}
	return nil
}

// triedAdoption reports whether a child is about to replace a foreign object, which adopt has
// tried. Applying over that object would be a different change.
func (p *Applier) triedAdoption(ctx context.Context, a *v1alpha1.App, child client.Object) (bool, error) {
	if len(workload.AdoptionOf(a).Objects) == 0 {
		return false, nil
	}
	have, err := p.liveChild(ctx, child)
	return have != nil && !metav1.IsControlledBy(have, a) && adopts(a, workload.KindOf(child), have), err
}

// adoptObject makes a foreign object the App's own. It replaces the spec and does not apply over
// it: otherwise fields that others have set would stay for good. For the same reason it clears the
// record of which manager set which field. Ownership comes last, so that a failed step is repeated.
func (p *Applier) adoptObject(ctx context.Context, owner *v1alpha1.App, desired, have client.Object) error {
	kind := workload.KindOf(desired)
	if err := ownedByOthers(owner, kind, have); err != nil {
		return err
	}
	if err := p.Current(ctx, owner); err != nil {
		return err
	}
	patch, err := becoming(desired, have)
	if err != nil {
		return err
	}
	if err := p.store.Live.Patch(ctx, have, patch, client.FieldOwner(objectmeta.FieldManager)); err != nil {
		return fmt.Errorf("adopt %s %s: %w", kind, desired.GetName(), err)
	}
	owners := append(slices.Clone(have.GetOwnerReferences()), desired.GetOwnerReferences()...)
	patch, err = jsonPatch(have, map[string]any{"/metadata/managedFields": []any{map[string]any{}}, "/metadata/ownerReferences": owners})
	if err != nil {
		return err
	}
	if err := p.store.Live.Patch(ctx, have, patch, client.FieldOwner(objectmeta.FieldManager)); err != nil {
		return fmt.Errorf("adopt %s %s: %w", kind, desired.GetName(), err)
	}
	p.log.Info().Str("namespace", owner.Namespace).Str("app", owner.Name).Str("object", workload.KindPath(kind, desired.GetName())).
		Msg("adopted an existing object with the name of an App")
	return p.Apply(ctx, desired, true)
}

// lastApplied is the annotation that kubectl apply relies on; it would take fields back.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// becoming returns the patch that turns an object into what the App wants. A Service keeps what an
// App does not define, such as its address, and an Ingress keeps its class.
func becoming(desired, have client.Object) (client.Patch, error) {
	want := tree(desired)
	prune(want)
	spec, _ := want["spec"].(map[string]any)
	kept, _ := tree(have)["spec"].(map[string]any)
	switch desired.(type) {
	case *corev1.Service:
		maps.Copy(kept, spec)
		spec = kept
	case *networkingv1.Ingress: // Kubernetes sets its class only on creation
		if class := kept["ingressClassName"]; class != nil && spec["ingressClassName"] == nil {
			spec["ingressClassName"] = class
		}
	}
	notes := merged(have.GetAnnotations(), desired.GetAnnotations())
	delete(notes, lastApplied)
	delete(notes, objectmeta.Applied) // it is not applied yet
	return jsonPatch(have, map[string]any{
		"/spec": spec, "/metadata/labels": merged(have.GetLabels(), desired.GetLabels()), "/metadata/annotations": notes,
	})
}

// jsonPatch sets fields of an object as it was read. For another object, or a newer version, it
// causes a conflict.
func jsonPatch(have client.Object, set map[string]any) (client.Patch, error) {
	type op struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	ops := make([]op, 0, 2+len(set))
	ops = append(ops, op{"replace", "/metadata/uid", have.GetUID()}, op{"replace", "/metadata/resourceVersion", have.GetResourceVersion()})
	for _, path := range slices.Sorted(maps.Keys(set)) {
		ops = append(ops, op{"add", path, set[path]})
	}
	raw, err := json.Marshal(ops)
	return client.RawPatch(types.JSONPatchType, raw), err
}

// foreignTo returns the error for an object that is not the App's. It names an owner only if
// something looks after the object.
// ownedByOthers refuses a foreign object that something looks after.
func ownedByOthers(owner *v1alpha1.App, kind string, have metav1.Object) error {
	err := Foreign(owner, kind, have)
	if foreign, ok := errors.AsType[*ForeignError](err); ok && foreign.owner == "" {
		return nil
	}
	return err
}

func foreignTo(kind string, have metav1.Object) *ForeignError {
	out := &ForeignError{Kind: kind, Namespace: have.GetNamespace(), Name: have.GetName()}
	labels, notes := have.GetLabels(), have.GetAnnotations()
	if c := metav1.GetControllerOf(have); c != nil {
		out.owner = c.Kind + " " + c.Name
		return out
	}
	first := func(from map[string]string, keys ...string) string {
		for _, key := range keys {
			if from[key] != "" {
				return from[key]
			}
		}
		return ""
	}
	switch {
	case notes["meta.helm.sh/release-name"] != "":
		out.owner = "Helm release " + notes["meta.helm.sh/release-name"]
	case notes[objectmeta.SetOf] != "":
		out.owner = "set " + notes[objectmeta.SetOf]
	case first(notes, "argocd.argoproj.io/tracking-id")+first(labels, "argocd.argoproj.io/instance") != "":
		out.owner = "Argo CD application " + first(map[string]string{
			"a": labels["argocd.argoproj.io/instance"], "b": strings.SplitN(notes["argocd.argoproj.io/tracking-id"], ":", 2)[0],
		}, "a", "b")
	case first(labels, "kustomize.toolkit.fluxcd.io/name") != "":
		out.owner = "Flux Kustomization " + labels["kustomize.toolkit.fluxcd.io/name"]
	case first(labels, "helm.toolkit.fluxcd.io/name") != "":
		out.owner = "Flux HelmRelease " + labels["helm.toolkit.fluxcd.io/name"]
	case labels[objectmeta.ManagedBy] == objectmeta.ManagedByAgent && labels[objectmeta.App] != "" && labels[objectmeta.App] != have.GetName():
		out.owner = "App " + labels[objectmeta.App]
	}
	return out
}
