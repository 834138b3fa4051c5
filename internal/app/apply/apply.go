package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/rs/zerolog"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Applier makes one object of an App match what is desired, and touches no other's.
type Applier struct {
	store *appcache.Store
	log   zerolog.Logger
	now   func() time.Time
}

// New returns an Applier.
func New(store *appcache.Store, log zerolog.Logger, now func() time.Time) *Applier {
	return &Applier{store: store, log: log, now: now}
}

// ForeignError refuses to touch an object that is not this App's. The owner is known if something
// looks after the object.
type ForeignError struct{ Kind, Namespace, Name, owner string }

func (e *ForeignError) Error() string {
	if e.owner != "" {
		return fmt.Sprintf("%s %q in namespace %s already exists and belongs to %s", e.Kind, e.Name, e.Namespace, e.owner)
	}
	return fmt.Sprintf("%s %q in namespace %s already exists and does not belong to this App", e.Kind, e.Name, e.Namespace)
}

// Fix returns what to do about it.
func (e *ForeignError) Fix() string {
	if e.owner != "" {
		return fmt.Sprintf("give the App another name, or have %s give the %s up", e.owner, e.Kind)
	}
	way := fmt.Sprintf("give the App another name, or delete the %s (kubectl -n %s delete %s %s)", e.Kind, e.Namespace, e.Kind, e.Name)
	if e.Kind == "Job" { // it has run
		return way
	}
	return "take it over: pipeops-runner deploy --adopt (adopt=true in the API); or " + way
}

// Foreign returns the error for an object that is not this App's. One of another App of the same
// name is a matter of time: that App was deleted, or has just been created.
func Foreign(owner *v1alpha1.App, kind string, have metav1.Object) error {
	if c := metav1.GetControllerOf(have); c != nil && c.APIVersion == v1alpha1.GroupVersion.String() && c.Kind == v1alpha1.Kind && c.Name == owner.Name {
		return problem.Errorf(problem.Busy, "wait until Kubernetes' garbage collector has deleted it",
			"%s %q in namespace %s is left of an App of this name that was deleted", kind, have.GetName(), have.GetNamespace())
	}
	return foreignTo(kind, have)
}

// Ensure applies desired unless the cluster already has it. It stores the cluster's object in
// desired.
func (p *Applier) Ensure(ctx context.Context, owner *v1alpha1.App, desired client.Object) error {
	if err := Seal(owner, desired); err != nil {
		return err
	}
	kind := desired.GetObjectKind().GroupVersionKind().Kind
	have, err := p.Get(ctx, desired)
	if owner.Autoscaled() {
		workload.KeepScale(owner, desired, have)
	}
	switch {
	case err != nil:
		return err
	case have == nil:
		return p.correct(ctx, owner, desired)
	case !metav1.IsControlledBy(have, owner) && adopts(owner, kind, have):
		return p.correct(ctx, owner, desired)
	case !metav1.IsControlledBy(have, owner):
		return Foreign(owner, kind, have)
	case have.GetAnnotations()[objectmeta.Applied] != desired.GetAnnotations()[objectmeta.Applied]:
		return p.ApplyOver(ctx, owner, desired, have)
	case drifted(desired, have):
		return p.correct(ctx, owner, desired)
	}
	return take(have, desired)
}

// Seal records on an object what is about to be applied. This shows later which fields the agent
// applied once and applies no more.
func Seal(owner *v1alpha1.App, o client.Object) error {
	sealed := o
	if owner.Autoscaled() { // the current number of pods is not a change of the spec
		sealed = o.DeepCopyObject().(client.Object)
		switch w := sealed.(type) {
		case *appsv1.Deployment:
			w.Spec.Replicas = nil
		case *appsv1.StatefulSet:
			w.Spec.Replicas = nil
		}
	}
	raw, err := json.Marshal(sealed)
	if err != nil {
		return fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	sum := sha256.Sum256(raw)
	o.SetAnnotations(merged(o.GetAnnotations(), map[string]string{objectmeta.Applied: hex.EncodeToString(sum[:16])}))
	return nil
}

// Get returns what the cache holds under desired's name, or nil.
func (p *Applier) Get(ctx context.Context, desired client.Object) (client.Object, error) {
	have, err := sameType(desired)
	if err != nil {
		return nil, err
	}
	err = p.store.Cached.Get(ctx, client.ObjectKeyFromObject(desired), have)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s from the cache: %w", desired.GetName(), err)
	}
	return have, nil
}

// sameType returns an empty object of the same type.
func sameType(o client.Object) (client.Object, error) {
	empty, ok := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("an App makes no %T", o)
	}
	return empty, nil
}

// RefuseForeign asks the API server itself, because the cache holds only labelled objects. It
// reports whether the object is there, and then is the App's.
func (p *Applier) RefuseForeign(ctx context.Context, owner *v1alpha1.App, desired client.Object) (there bool, err error) {
	have := &metav1.PartialObjectMetadata{}
	gvk := desired.GetObjectKind().GroupVersionKind()
	have.SetGroupVersionKind(gvk)
	err = p.store.Live.Get(ctx, client.ObjectKeyFromObject(desired), have)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("look for %s %s: %w", gvk.Kind, desired.GetName(), err)
	case !metav1.IsControlledBy(have, owner):
		return true, Foreign(owner, gvk.Kind, have)
	}
	return true, nil
}

// Apply sends desired by server-side apply. It takes back fields of our own objects by force. It
// creates a new object without force, so that it does not overwrite an object that another client
// created in the same instant.
func (p *Applier) Apply(ctx context.Context, desired client.Object, force bool, opts ...client.ApplyOption) error {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(desired)
	if err != nil {
		return fmt.Errorf("encode %s: %w", desired.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: tree}
	prune(u.Object)
	opts = append(opts, client.FieldOwner(objectmeta.FieldManager))
	if force {
		opts = append(opts, client.ForceOwnership)
	}
	if err := p.store.Live.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), opts...); err != nil {
		if !force && apierrors.IsConflict(err) {
			return &ForeignError{Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
		}
		return fmt.Errorf("apply %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, desired)
}

// prune removes fields that Go types add although no spec sets them, in the object and in its
// templates.
func prune(tree map[string]any) {
	unstructured.RemoveNestedField(tree, "status")
	unstructured.RemoveNestedField(tree, "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(tree, "spec", "template", "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(tree, "spec", "jobTemplate", "metadata", "creationTimestamp")
	unstructured.RemoveNestedField(tree, "spec", "jobTemplate", "spec", "template", "metadata", "creationTimestamp")
	claims, _, _ := unstructured.NestedSlice(tree, "spec", "volumeClaimTemplates")
	for _, claim := range claims {
		if c, ok := claim.(map[string]any); ok {
			prune(c)
		}
	}
	if len(claims) > 0 {
		_ = unstructured.SetNestedSlice(tree, claims, "spec", "volumeClaimTemplates") // these were read from there
	}
}

// drifted reports whether an object differs in any field that the agent sets. Fields that others
// add do not count. A number that the agent leaves unset does not count either, because applying
// would not restore it.
func drifted(desired, have client.Object) bool {
	same := equality.Semantic.DeepDerivative(desired.GetLabels(), have.GetLabels()) &&
		equality.Semantic.DeepDerivative(desired.GetAnnotations(), have.GetAnnotations()) &&
		equality.Semantic.DeepDerivative(specOf(desired), specOf(have))
	return !same && len(differing(desired, have)) > 0
}

// specOf returns the part of an object that Kubernetes calls its spec.
func specOf(o client.Object) any {
	return reflect.ValueOf(o).Elem().FieldByName("Spec").Interface()
}

// take copies the cached object into desired.
func take(have, desired client.Object) error {
	from, into := reflect.ValueOf(have.DeepCopyObject()).Elem(), reflect.ValueOf(desired).Elem()
	if from.Type() != into.Type() {
		return fmt.Errorf("%T is no %T", have, desired)
	}
	into.Set(from)
	return nil
}
