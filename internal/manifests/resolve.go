package manifests

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/duplicates"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// resolve determines what each object is and where it belongs. It refuses objects that may never be
// applied, or not here. It makes no requests about the objects themselves.
func (r *run) resolve(ctx context.Context, objects []*unstructured.Unstructured) {
	r.defined = definedKinds(objects)
	r.made = map[string]bool{}
	seen := map[Ref]string{}
	for _, given := range objects {
		i := r.take(given)
		ref := same(i.out.ManifestRef)
		if before, twice := seen[ref]; twice && i.out.Problem == nil {
			i.fail(i.located(problem.Errorf(problem.Invalid, "keep one of them", "the same object is there twice%s", before)))
		}
		seen[ref] = ""
		if i.where != "" {
			seen[ref] = ", first in " + i.where
		}
		if kindOf(ref) == kindNamespace {
			r.made[ref.Name] = true
		}
		r.given = append(r.given, i)
	}
	for _, i := range r.given {
		if i.out.Problem != nil {
			continue
		}
		if err := r.allowed(ctx, i); err != nil {
			i.fail(i.located(err))
		}
	}
	duplicates.RemoveIn(r.given, func(i *item) *unstructured.Unstructured { return i.object },
		func(i *item, warnings []string) { i.out.Warnings = warnings })
	r.items = inOrder(r.given)
}

// take makes an item of an object, which stays as it is.
func (r *run) take(given *unstructured.Unstructured) *item {
	u := given.DeepCopy()
	i := &item{object: u, out: runnerapi.AppliedObject{ManifestRef: refOf(u)}}
	if r.opts.Where != nil {
		i.where = r.opts.Where(given)
	}
	var err error
	if i.brings, err = input.Object(given); err == nil {
		err = r.place(i)
	}
	if err != nil {
		i.fail(i.located(err))
	}
	return i
}

// place finds an object's resource, and puts the object into the set's namespace if it names none.
func (r *run) place(i *item) error {
	mapping, pending, err := r.mapping(i.out.ManifestRef)
	if err != nil {
		return err
	}
	i.mapping, i.pending = mapping, pending
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		if i.object.GetNamespace() != "" {
			return problem.Errorf(problem.Invalid, "leave metadata.namespace out", "a %s is in no namespace", i.out.Kind)
		}
	} else if i.object.GetNamespace() == "" {
		i.object.SetNamespace(r.set.Namespace)
	}
	i.out.ManifestRef = refOf(i.object)
	if err := r.applier.protect(i.object); err != nil {
		return err
	}
	if kindOf(i.out.ManifestRef) == kindNamespace {
		labels := i.object.GetLabels()
		if labels == nil {
			labels = map[string]string{}
		}
		labels[objectmeta.ManagedBy] = objectmeta.ManagedByAgent // the agent has rights only in such namespaces
		i.object.SetLabels(labels)
	}
	notes := i.object.GetAnnotations()
	if notes == nil {
		notes = map[string]string{}
	}
	notes[objectmeta.SetOf] = r.set.String()
	i.object.SetAnnotations(notes)
	return nil
}
