package harness

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applied records what was applied to a foreign cluster, in order to remove it again.
type applied struct{ objects []*unstructured.Unstructured }

func (a *applied) add(obj *unstructured.Unstructured) {
	a.objects = append(a.objects, obj.DeepCopy())
}

// delete removes everything. First the Apps, while there is an agent that handles them; then the
// rest, last applied first.
func (a *applied) delete(ctx context.Context, k *Kube) error {
	apps := &unstructured.UnstructuredList{}
	apps.SetAPIVersion("pipeops.io/v1alpha1")
	apps.SetKind("AppList")
	err := k.List(ctx, apps)
	if meta.IsNoMatchError(err) {
		err = nil
	}
	errs := []error{err}
	for i := range apps.Items {
		errs = append(errs, k.deleteAndWait(ctx, &apps.Items[i]))
	}
	for i := len(a.objects) - 1; i >= 0; i-- {
		errs = append(errs, k.deleteAndWait(ctx, a.objects[i]))
	}
	return errors.Join(errs...)
}

// gone reports whether an object, or even its kind, does not exist.
func gone(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// deleteAndWait deletes an object and waits until it is gone.
func (k *Kube) deleteAndWait(ctx context.Context, obj *unstructured.Unstructured) error {
	if err := k.Delete(ctx, obj, client.PropagationPolicy("Background")); gone(err) {
		return nil
	} else if err != nil {
		return err
	}
	return Eventually(ctx, obj.GetKind()+" "+obj.GetName()+" is gone", func(ctx context.Context) error {
		err := k.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopy())
		if gone(err) {
			return nil
		}
		return errors.Join(err, errors.New("still there"))
	})
}
