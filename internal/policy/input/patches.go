package input

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Patches returns what the patches of an App's spec bring beside its other fields, by patch and
// object. It compares the objects that the App becomes before and after each patch, so nothing that
// a patch does can be missed. An error is about a patch that cannot be applied.
func Patches(name string, s runnerapi.AppSpec) (all []runnerapi.ObjectIntent, err error) {
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(name, "app")}, Spec: s}
	err = workload.EachPatch(a, func(i int, was, is client.Object) error {
		in, err := added(was, is)
		within(&in, fmt.Sprintf("patches[%d].patch", i))
		all = append(all, in)
		return err
	})
	return all, err
}

// added returns what an object brings that it did not bring before.
func added(before, now client.Object) (in runnerapi.ObjectIntent, err error) {
	was, err := ofTyped(before)
	if err != nil {
		return in, err
	}
	if in, err = ofTyped(now); err != nil {
		return in, err
	}
	in.Containers = slices.DeleteFunc(in.Containers, func(c runnerapi.ContainerIntent) bool {
		return slices.ContainsFunc(was.Containers, func(w runnerapi.ContainerIntent) bool {
			w.Field = c.Field // the patch may have moved it
			return w == c
		})
	})
	in.Counts = slices.DeleteFunc(in.Counts, func(c runnerapi.CountIntent) bool { return slices.Contains(was.Counts, c) })
	in.Annotations = slices.DeleteFunc(in.Annotations, func(a runnerapi.NameIntent) bool { return slices.Contains(was.Annotations, a) })
	in.Placement, in.Outside, in.Hosts = newNames(in.Placement, was.Placement), newNames(in.Outside, was.Outside), newNames(in.Hosts, was.Hosts)
	return in, nil
}

func newNames(now, was []runnerapi.NameIntent) []runnerapi.NameIntent {
	return slices.DeleteFunc(now, func(n runnerapi.NameIntent) bool {
		return slices.ContainsFunc(was, func(w runnerapi.NameIntent) bool { return w.Name == n.Name })
	})
}

func ofTyped(o client.Object) (runnerapi.ObjectIntent, error) {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return runnerapi.ObjectIntent{}, fmt.Errorf("encode %s: %w", o.GetName(), err)
	}
	return Object(&unstructured.Unstructured{Object: tree})
}

// within puts a path in front of all fields.
func within(in *runnerapi.ObjectIntent, path string) {
	if in.Public != "" {
		in.Public = join(path, in.Public)
	}
	for n := range in.Counts {
		in.Counts[n].Field = join(path, in.Counts[n].Field)
	}
	for n := range in.Containers {
		in.Containers[n].Field = join(path, in.Containers[n].Field)
	}
	for _, names := range [][]runnerapi.NameIntent{in.Hosts, in.Outside, in.Annotations, in.Placement} {
		for n := range names {
			names[n].Field = join(path, names[n].Field)
		}
	}
}
