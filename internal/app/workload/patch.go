package workload

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// patched applies the patches of an App's spec to the objects that it becomes. This is the only
// place, so that all code that renders an App or judges it has the same objects. An error names the
// patch and the field at fault.
func patched(a *v1alpha1.App, all ...client.Object) ([]client.Object, error) {
	return all, eachPatch(a, all, func(int, client.Object, client.Object) error { return nil })
}

// EachPatch applies the patches of an App's spec one after the other. It calls seen with an object
// before and after a patch, whose index it passes. An autoscaler counts as there, because a scale
// command can bring it without another look at the patches.
func EachPatch(a *v1alpha1.App, seen func(i int, was, is client.Object) error) error {
	if len(a.Spec.Patches) == 0 {
		return nil
	}
	if a.Spec.Autoscaling == nil && a.Spec.Type.Scales() {
		a = a.DeepCopy()
		a.Spec.Autoscaling = &runnerapi.Autoscaling{Min: 1, Max: 1}
	}
	return eachPatch(a, Unpatched(a), seen)
}

func eachPatch(a *v1alpha1.App, all []client.Object, seen func(i int, was, is client.Object) error) error {
	if errs := runnerapi.CheckPatches(a.Spec.Patches); len(errs) > 0 { // a file of a Git source has met no schema
		return invalid(errs[0].Field, problem.CorrectField, "%s", errs[0].Message)
	}
	for i, p := range a.Spec.Patches {
		if err := targets(a, p.Target.Kind); err != nil {
			return inPatch(err, i, "target.kind")
		}
		for n, o := range all {
			if !targeted(a, p.Target.Kind, o) {
				continue
			}
			out, err := apply(p.Patch, o)
			if err != nil {
				return inPatch(err, i, "patch")
			}
			if err := seen(i, o, out); err != nil {
				return err
			}
			all[n] = out
		}
	}
	return nil
}

func patchedOne[T client.Object](a *v1alpha1.App, o T) (T, error) {
	all, err := patched(a, o)
	if err != nil {
		return o, err
	}
	return all[0].(T), nil
}

// targets refuses a kind that the App does not become. An autoscaler may come and go by a scale
// command: its patches wait for it.
func targets(a *v1alpha1.App, kind string) error {
	own := KindOf(Blank(a.Spec.Type))
	switch {
	case kind == "" || kind == own, kind == kindAutoscaler && a.Spec.Type.Scales(), kind == kindService && service(a) != nil:
		return nil
	case kind == kindService:
		return invalid("", "declare ports", "the App has no Service, because it has no ports")
	}
	return invalid("", "leave it out to patch the "+own, "an App of type %s becomes no %s", cmp.Or(a.Spec.Type, runnerapi.TypeDeployment), kind)
}

const kindAutoscaler, kindService = "HorizontalPodAutoscaler", "Service"

// targeted reports whether a patch for a kind is for an object. The Service that names the pods of
// a StatefulSet is the agent's.
func targeted(a *v1alpha1.App, kind string, o client.Object) bool {
	if kind == "" {
		return IsWorkload(o)
	}
	return kind == KindOf(o) && (kind != kindService || o.GetName() == a.Name)
}

// apply applies one patch to one object.
func apply(patch map[string]any, o client.Object) (client.Object, error) {
	if err := decode.CheckFields(withoutDirectives(patch), o); err != nil {
		return nil, mistyped(err)
	}
	was, err := treeOf(o)
	if err != nil {
		return nil, err
	}
	out, err := merge(patch, o)
	if err != nil {
		return nil, err
	}
	complete(o, out)
	is, err := treeOf(out)
	if err != nil {
		return nil, err
	}
	if err := keepsOwn(patch, o, was, is); err != nil {
		return nil, err
	}
	return out, confined(o, out)
}

// merge returns a patched copy of an object.
func merge(patch map[string]any, o client.Object) (client.Object, error) {
	original, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	change, err := json.Marshal(patch)
	if err != nil {
		return nil, invalid("", problem.CorrectField, "is not an object of JSON")
	}
	merged, err := strategicpatch.StrategicMergePatch(original, change, o)
	if err != nil {
		return nil, invalid("", problem.CorrectField, "is not a strategic merge patch: %v", err)
	}
	out, ok := reflect.New(reflect.TypeOf(o).Elem()).Interface().(client.Object)
	if !ok {
		return nil, fmt.Errorf("an App becomes no %T", o)
	}
	if err := json.Unmarshal(merged, out); err != nil {
		return nil, invalid("", problem.CorrectField, "makes the object invalid: %v", err)
	}
	return out, nil
}

// withoutDirectives returns a patch without the keys that tell how to merge it, such as $patch.
func withoutDirectives(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, value := range v {
			if !strings.HasPrefix(key, "$") {
				out[key] = withoutDirectives(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = withoutDirectives(v[i])
		}
		return out
	}
	return v
}

func treeOf(o client.Object) (tree map[string]any, err error) {
	raw, err := json.Marshal(o)
	if err == nil {
		err = json.Unmarshal(raw, &tree)
	}
	return tree, err
}

func invalid(field, fix, format string, args ...any) *problem.Error {
	return problem.Errorf(problem.Invalid, fix, format, args...).WithField(field)
}

func mistyped(err error) error {
	if e := (&decode.Error{}); errors.As(err, &e) {
		return invalid(e.Field, problem.CorrectField, "%s", e.Message)
	}
	return err
}

// inPatch names the patch in front of the field that an error names.
func inPatch(err error, i int, part string) error {
	p := &problem.Error{}
	if !errors.As(err, &p) {
		return err
	}
	field := fmt.Sprintf("patches[%d].%s", i, part)
	if p.Field != "" {
		field += "." + p.Field
	}
	return p.WithField(field)
}

// CheckPatches returns what is wrong with the patches of an App.
func CheckPatches(a *v1alpha1.App) error {
	return EachPatch(a, func(int, client.Object, client.Object) error { return nil })
}
