package manifests

import (
	"context"
	"errors"
	"reflect"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// atATime is how many objects are checked at a time.
const atATime = 4

// plan lets the cluster check every object that is not refused yet, and first whether it has
// another owner. It records what would happen to each, or why it is refused, and changes nothing.
func (r *run) plan(ctx context.Context) error {
	for _, items := range definitionsFirst(r.items) {
		var group errgroup.Group
		group.SetLimit(atATime)
		for _, i := range items {
			if i.out.Problem != nil {
				continue
			}
			group.Go(func() error {
				if err := r.planOne(ctx, i); err != nil {
					i.fail(i.located(err))
				}
				return ctx.Err()
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// definitionsFirst splits items in their order: what the cluster refuses of a kind may be right for
// a definition that changes.
func definitionsFirst(items []*item) [2][]*item {
	n := slices.IndexFunc(items, func(i *item) bool { return kindOf(i.out.ManifestRef) != kindCRD })
	if n < 0 {
		n = len(items)
	}
	return [2][]*item{items[:n], items[n:]}
}

func (r *run) planOne(ctx context.Context, i *item) error {
	if i.pending {
		i.out.Action, i.out.Message = runnerapi.ApplyCreated, "not checked before it is applied: its kind or its namespace comes with the set"
		return nil
	}
	found := r.find(ctx, i)
	if found != nil && !errors.Is(found, errUnserved) {
		return found
	}
	if err := ownedByOther(i.live, r.set); err != nil {
		return err
	}
	would, err := r.patch(ctx, i, true)
	if found != nil && !kubeproblem.IsUnserved(err) { // it is served by now
		return r.planOne(ctx, i)
	}
	if kubeproblem.IsUnserved(err) {
		_ = r.api.kinds.forget() // what was known is out of date
	}
	if why := r.unchecked(i, err); why != "" {
		if i.out.Action = runnerapi.ApplyCreated; i.live != nil {
			i.out.Action = runnerapi.ApplyConfigured
		}
		i.pending, i.live = true, nil
		i.out.Message = "not checked before it is applied: " + why
		return nil
	}
	if kubeproblem.IsUnserved(err) {
		return noKind(i.out.ManifestRef)
	}
	if err != nil {
		return problemOf(err, i.out.ManifestRef, "checking it")
	}
	switch {
	case i.live == nil:
		i.out.Action = runnerapi.ApplyCreated
	case unchanged(i.live, would):
		i.out.Action = runnerapi.ApplyUnchanged
		i.live = nil
		return nil
	default:
		i.out.Action = runnerapi.ApplyConfigured
	}
	if r.opts.Diff {
		i.out.Diff = diffOf(i.out.ManifestRef, i.live, would)
	}
	i.live = identityOf(i.live)
	return nil
}

// unchecked returns why the API server's refusal of a dry run may not hold when the object's turn
// comes; empty if it will.
func (r *run) unchecked(i *item, err error) string {
	switch {
	case err == nil:
		return ""
	case kubeproblem.IsUnserved(err) && r.defined[gvkOf(i.out.ManifestRef)] != nil:
		return "its kind comes with the set"
	case apierrors.IsNotFound(err) && hasRoleOf(r.items, i):
		return "its role comes with the set"
	case (apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || kubeproblem.Mistyped(err) != "") && redefines(r.items, i):
		i.redefined = true
		return "its definition changes with the set"
	}
	return ""
}

// redefines reports whether one of the items changes the definition of an object's kind.
func redefines(items []*item, i *item) bool {
	return slices.ContainsFunc(items, func(d *item) bool {
		return d.out.Action == runnerapi.ApplyConfigured && kindOf(d.out.ManifestRef) == kindCRD &&
			nested(d.object, "spec", "group") == groupOf(i.out.ManifestRef) && nested(d.object, "spec", "names", "kind") == i.out.Kind
	})
}

// unchanged reports whether applying would change nothing, not even the owner of a field.
func unchanged(live, would *unstructured.Unstructured) bool {
	return reflect.DeepEqual(settled(live), settled(would))
}

// settled returns an object without what every write changes.
func settled(u *unstructured.Unstructured) map[string]any {
	c := u.DeepCopy()
	fields := c.GetManagedFields()
	for n := range fields {
		fields[n].Time = nil
	}
	c.SetManagedFields(fields)
	c.SetResourceVersion("")
	return c.Object
}

// leftovers finds the inventory's objects that are not among the applied ones. It refuses those
// that the policy does not let this Runner delete.
func (r *run) leftovers(ctx context.Context) {
	applied := map[Ref]bool{}
	for _, i := range r.given {
		ref := same(i.out.ManifestRef)
		applied[ref] = true
		if i.out.Problem != nil { // it may have been refused before it was placed
			for _, ref.Namespace = range []string{"", r.set.Namespace} {
				applied[ref] = true
			}
		}
	}
	for _, ref := range r.inv.entries {
		if applied[same(ref)] {
			continue
		}
		i := &item{out: runnerapi.AppliedObject{ManifestRef: ref, Action: runnerapi.ApplyPruned}}
		r.left = append(r.left, i)
		if err := r.admitLeft(ctx, i); err != nil {
			i.fail(i.located(err))
		}
	}
	r.left = backwards(inOrder(r.left))
}

// keepDefinitions refuses to prune the definition of an item that stays: it would go, too.
func keepDefinitions(left, items []*item) {
	for _, d := range left {
		if d.out.Action != runnerapi.ApplyPruned || d.live == nil || kindOf(d.out.ManifestRef) != kindCRD {
			continue
		}
		for _, i := range items {
			if i.mapping != nil && i.mapping.Resource.GroupResource().String() == d.out.Name {
				d.fail(d.located(problem.Errorf(problem.Invalid, "keep the definition in the set, or take out the objects of its kind",
					"it left the set, and %s did not, which would be deleted with it", i.out.ManifestRef)))
				break
			}
		}
	}
}

func backwards(items []*item) []*item {
	for a, b := 0, len(items)-1; a < b; a, b = a+1, b-1 {
		items[a], items[b] = items[b], items[a]
	}
	return items
}

// admitLeft checks whether an object that left the set may be deleted, and whether it exists.
func (r *run) admitLeft(ctx context.Context, i *item) error {
	ref := i.out.ManifestRef
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(ref.APIVersion)
	u.SetKind(ref.Kind)
	u.SetNamespace(ref.Namespace)
	u.SetName(ref.Name)
	if err := r.applier.protect(u); err != nil { // the inventory may be forged
		return err
	}
	mapping, _, err := r.mapping(ref)
	if problem.Is(err, problem.Invalid) {
		i.out.Message = "the cluster does not know its kind any more"
		return nil
	}
	if err != nil {
		return err
	}
	i.mapping = mapping
	if err := orAbsent(r.find(ctx, i)); err != nil || i.live == nil {
		return err // or it is already gone
	}
	if i.live.GetAnnotations()[objectmeta.SetOf] != r.set.String() {
		i.out.Action, i.out.Message = runnerapi.ApplyKept, "it is left alone: it "+owner(i.live)
		i.live = nil // it leaves the inventory
		return nil
	}
	i.live = identityOf(i.live)
	if !r.opts.Prune {
		i.out.Action, i.out.Message = runnerapi.ApplyKept, "it left the set and was not to be pruned"
		return nil
	}
	if ref.Namespace != "" {
		if err := r.managed(ctx, ref.Namespace); err != nil {
			return err
		}
	}
	return r.admit(ref, runnerapi.ObjectIntent{Kind: kindOf(ref), Name: ref.Name})
}

// prune deletes what left the set, in reverse order, with the propagation of its kind.
func (r *run) prune(ctx context.Context, propagation func(kind string) metav1.DeletionPropagation) {
	for _, i := range r.left {
		if i.out.Action != runnerapi.ApplyPruned || i.live == nil {
			continue
		}
		if err := r.remove(ctx, i, propagation(kindOf(i.out.ManifestRef))); err != nil {
			i.fail(i.located(problemOf(err, i.out.ManifestRef, "deleting it")))
		}
	}
}

func (r *run) remove(ctx context.Context, i *item, how metav1.DeletionPropagation) error {
	uid := i.live.GetUID()
	err := r.api.on(i.mapping, i.out.Namespace).Delete(ctx, i.out.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid}, PropagationPolicy: &how,
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
