package app

import (
	"context"
	"encoding/json"
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

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// adoption is what an App has taken over or is about to take over. It is recorded on the App, so
// that the reconciler carries it out, also after a restart. Selectors stay as they were: a
// workload's is immutable, and existing pods must stay reachable until they are gone.
type adoption struct {
	Objects     map[string]types.UID `json:"objects"`               // by kind/name
	Selector    map[string]string    `json:"selector,omitempty"`    // of the workload
	Service     map[string]string    `json:"service,omitempty"`     // selector of the Service
	ServiceName *string              `json:"serviceName,omitempty"` // of a StatefulSet
}

// adoption returns the App's record. An unreadable record counts as none.
func (a *App) adoption() (noted adoption) {
	if json.Unmarshal([]byte(a.Annotations[managed.Adopted]), &noted) != nil {
		return adoption{}
	}
	return noted
}

// adopts reports whether the App was asked to take over this exact object.
func (a *App) adopts(kind string, o metav1.Object) bool {
	return o.GetUID() != "" && a.adoption().Objects[kindPath(kind, o.GetName())] == o.GetUID()
}

// adopt records on the App which objects with its names it takes over. First it verifies that it
// can: the objects have no other owner, and the cluster accepts the change (a dry run).
func (e *Engine) adopt(ctx context.Context, a *App) error {
	noted := adoption{Objects: map[string]types.UID{}}
	before := a.adoption()
	maps.Copy(noted.Objects, before.Objects)
	noted.Selector, noted.Service, noted.ServiceName = before.Selector, before.Service, before.ServiceName
	var found []client.Object
	for _, child := range children(a) {
		have, err := e.liveChild(ctx, child)
		if err != nil {
			return err
		}
		if have == nil || metav1.IsControlledBy(have, a) {
			continue
		}
		if err := e.adoptable(ctx, a, child, have); err != nil {
			return err
		}
		noted.take(child, have)
		found = append(found, have)
	}
	if len(found) == 0 {
		return nil
	}
	text, err := json.Marshal(noted)
	if err != nil {
		return fmt.Errorf("encode what App %s adopts: %w", a.key(), err)
	}
	a.Annotations = with(a.Annotations, managed.Adopted, string(text))
	return e.tryAdoption(ctx, a, found)
}

func (n *adoption) take(child, have client.Object) {
	n.Objects[kindPath(kindOf(child), have.GetName())] = have.GetUID()
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
func (e *Engine) liveChild(ctx context.Context, child client.Object) (client.Object, error) {
	have, err := sameType(child)
	if err != nil {
		return nil, err
	}
	err = e.live.Get(ctx, client.ObjectKeyFromObject(child), have)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for %s %s: %w", kindOf(child), child.GetName(), err)
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
func (e *Engine) adoptable(ctx context.Context, a *App, child, have client.Object) error {
	kind := kindOf(child)
	if foreign := foreignTo(kind, have); foreign.owner != "" {
		return foreign
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
		return e.adoptableService(ctx, a, o, refuse)
	}
	return adoptableSelector(a, selectorIn(have), refuse)
}

type refusing func(fix, why string, args ...any) error

// adoptableService refuses a Service that would not lead to the App's pods, or that the App's
// Service cannot be.
func (e *Engine) adoptableService(ctx context.Context, a *App, o *corev1.Service, refuse refusing) error {
	if o.Name != a.Name || o.Spec.Type != corev1.ServiceTypeClusterIP || o.Spec.ClusterIP == corev1.ClusterIPNone || len(o.Spec.Selector) == 0 {
		return refuse("give the App another name, or deploy it without ports", "an App's Service is of type ClusterIP, with an address and a selector")
	}
	labels := maps.Clone(a.Spec.PodLabels)
	workload, err := e.liveChild(ctx, children(a)[0])
	if err != nil {
		return err
	}
	if workload != nil {
		if s := selectorIn(workload); s != nil {
			labels = merged(labels, s.MatchLabels)
		}
	}
	labels = merged(labels, managed.AppLabels(a.Name))
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
func adoptableSelector(a *App, s *metav1.LabelSelector, refuse refusing) error {
	if s == nil {
		return nil
	}
	if len(s.MatchExpressions) > 0 {
		return refuse("give the App another name", "its selector has matchExpressions, cannot be changed, and an App selects by labels alone")
	}
	own := managed.AppLabels(a.Name)
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
func (e *Engine) tryAdoption(ctx context.Context, a *App, found []client.Object) error {
	a = a.DeepCopy()
	if a.UID == "" {
		a.UID = types.UID("00000000-0000-0000-0000-000000000000")
	}
	for _, child := range children(a) {
		for _, have := range found {
			if kindOf(have) != kindOf(child) || have.GetName() != child.GetName() {
				continue
			}
			patch, err := becoming(child, have)
			if err != nil {
				return err
			}
			if err := e.live.Patch(ctx, have.DeepCopyObject().(client.Object), patch, client.DryRunAll, client.FieldOwner(managed.FieldManager)); err != nil {
				return fmt.Errorf("try to adopt %s %s: %w", kindOf(child), child.GetName(), err)
			}
		}
	}
	return nil
}

// triedAdoption reports whether a child is about to replace a foreign object, which adopt has
// tried. Applying over that object would be a different change.
func (e *Engine) triedAdoption(ctx context.Context, a *App, child client.Object) (bool, error) {
	if len(a.adoption().Objects) == 0 {
		return false, nil
	}
	have, err := e.liveChild(ctx, child)
	return have != nil && !metav1.IsControlledBy(have, a) && a.adopts(kindOf(child), have), err
}

// adoptObject makes a foreign object the App's own. It replaces the spec and does not apply over
// it: otherwise fields that others have set would stay for good. For the same reason it clears the
// record of which manager set which field. Ownership comes last, so that a failed step is repeated.
func (e *Engine) adoptObject(ctx context.Context, owner *App, desired, have client.Object) error {
	kind := kindOf(desired)
	if foreign := foreignTo(kind, have); foreign.owner != "" {
		return foreign
	}
	if err := e.current(ctx, owner); err != nil {
		return err
	}
	patch, err := becoming(desired, have)
	if err != nil {
		return err
	}
	if err := e.live.Patch(ctx, have, patch, client.FieldOwner(managed.FieldManager)); err != nil {
		return fmt.Errorf("adopt %s %s: %w", kind, desired.GetName(), err)
	}
	owners := append(slices.Clone(have.GetOwnerReferences()), desired.GetOwnerReferences()...)
	patch, err = jsonPatch(have, map[string]any{"/metadata/managedFields": []any{map[string]any{}}, "/metadata/ownerReferences": owners})
	if err != nil {
		return err
	}
	if err := e.live.Patch(ctx, have, patch, client.FieldOwner(managed.FieldManager)); err != nil {
		return fmt.Errorf("adopt %s %s: %w", kind, desired.GetName(), err)
	}
	e.log.Info().Str("namespace", owner.Namespace).Str("app", owner.Name).Str("object", kindPath(kind, desired.GetName())).
		Msg("adopted an object of an App's name that was made otherwise")
	return e.apply(ctx, desired, true)
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
	delete(notes, managed.Applied) // it is not applied yet
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
func foreignTo(kind string, have metav1.Object) *foreignError {
	out := &foreignError{kind: kind, namespace: have.GetNamespace(), name: have.GetName()}
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
	case notes[managed.SetOf] != "":
		out.owner = "set " + notes[managed.SetOf]
	case first(notes, "argocd.argoproj.io/tracking-id")+first(labels, "argocd.argoproj.io/instance") != "":
		out.owner = "Argo CD application " + first(map[string]string{
			"a": labels["argocd.argoproj.io/instance"], "b": strings.SplitN(notes["argocd.argoproj.io/tracking-id"], ":", 2)[0],
		}, "a", "b")
	case first(labels, "kustomize.toolkit.fluxcd.io/name") != "":
		out.owner = "Flux Kustomization " + labels["kustomize.toolkit.fluxcd.io/name"]
	case first(labels, "helm.toolkit.fluxcd.io/name") != "":
		out.owner = "Flux HelmRelease " + labels["helm.toolkit.fluxcd.io/name"]
	case labels[managed.By] == managed.ByAgent && labels[managed.App] != "" && labels[managed.App] != have.GetName():
		out.owner = "App " + labels[managed.App]
	}
	return out
}
