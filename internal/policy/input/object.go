package input

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/decode"
	"github.com/pipeops/pipeops-vm-agent/internal/denylist"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const kindApp = "App.pipeops.io"

// data are kinds whose objects run nothing: what looks like a pod in them is none.
var data = map[string]bool{"CustomResourceDefinition.apiextensions.k8s.io": true, "ConfigMap": true, "Secret": true}

// pods are where Kubernetes' own kinds have the spec of their pods.
var pods = map[string][]string{
	"Pod": {"spec"}, "PodTemplate": {"template", "spec"}, "ReplicationController": {"spec", "template", "spec"},
	"Deployment.apps": {"spec", "template", "spec"}, "StatefulSet.apps": {"spec", "template", "spec"},
	"DaemonSet.apps": {"spec", "template", "spec"}, "ReplicaSet.apps": {"spec", "template", "spec"},
	"Job.batch": {"spec", "template", "spec"}, "CronJob.batch": {"spec", "jobTemplate", "spec", "template", "spec"},
}

// RunsPods reports whether a kind is one of Kubernetes' own that run pods.
func RunsPods(kind string) bool { return pods[kind] != nil }

// Object returns what an object of any kind brings. Fields are those of the object. It returns an
// error for an object that runs pods and cannot be read: such an object is not allowed through.
func Object(u *unstructured.Unstructured) (runnerapi.ObjectIntent, error) {
	kind := denylist.Kind(u.GroupVersionKind())
	if kind == kindApp {
		return ofApp(u)
	}
	w := walk{in: runnerapi.ObjectIntent{Kind: kind, Name: u.GetName()}}
	if path := pods[kind]; path != nil {
		w.known = true
		if err := readable(u, path); err != nil {
			return w.in, err
		}
	}
	if data[kind] {
		meta, _ := u.Object["metadata"].(map[string]any)
		w.annotations("metadata.annotations", meta["annotations"])
		return w.in, w.err
	}
	for _, key := range slices.Sorted(maps.Keys(u.Object)) {
		if key != "status" {
			w.value(key, key, u.Object[key])
		}
	}
	w.in.Hosts = hosts(kind, u.Object)
	return w.in, w.err
}

// ofApp returns the App's own, with the object's fields.
func ofApp(u *unstructured.Unstructured) (runnerapi.ObjectIntent, error) {
	var app struct {
		Spec runnerapi.AppSpec `json:"spec"`
	}
	if err := decode.CheckTypes(u.Object, app); err != nil {
		return runnerapi.ObjectIntent{Kind: kindApp}, mistyped("", err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &app); err != nil {
		return runnerapi.ObjectIntent{Kind: kindApp}, unreadable("spec", "cannot be read as that of an App")
	}
	in := App(app.Spec)
	in.Kind, in.Name = kindApp, u.GetName()
	if in.Public != "" {
		in.Public = "spec." + in.Public
	}
	for n := range in.Counts {
		in.Counts[n].Field = "spec." + in.Counts[n].Field
	}
	for n := range in.Containers {
		in.Containers[n].Field = join("spec", in.Containers[n].Field)
	}
	for _, names := range [][]runnerapi.NameIntent{in.Hosts, in.Annotations} {
		for n := range names {
			names[n].Field = "spec." + names[n].Field
		}
	}
	w := walk{in: in}
	meta, _ := u.Object["metadata"].(map[string]any)
	w.annotations("metadata.annotations", meta["annotations"])
	return w.in, w.err
}

// readable refuses the spec of pods that Kubernetes could not read either.
func readable(u *unstructured.Unstructured, path []string) error {
	var at any = u.Object
	for n, step := range path {
		fields, ok := at.(map[string]any)
		if !ok && at != nil {
			return unreadable(strings.Join(path[:n], "."), "is not an object")
		}
		at = fields[step]
	}
	return mistyped(strings.Join(path, "."), decode.CheckTypes(at, corev1.PodSpec{}))
}

// mistyped returns the error of CheckTypes for a value that is in a field.
func mistyped(field string, err error) error {
	e := &decode.Error{}
	if errors.As(err, &e) {
		return unreadable(strings.TrimSuffix(field+"."+e.Field, "."), e.Message)
	}
	return err
}

func unreadable(field, message string) error {
	return problem.Errorf(problem.Invalid, "correct the manifest", "%s", message).WithField(field)
}

// walk gathers what an object brings.
type walk struct {
	in    runnerapi.ObjectIntent
	known bool // the kind's pods are Kubernetes' own
	err   error
}

// countFields are those of Kubernetes' kinds, and of those that scale others.
var countFields = map[string]bool{"replicas": true, "parallelism": true, "maxReplicas": true, "maxReplicaCount": true}

// containerFields hold the containers of a pod.
var containerFields = map[string]bool{"containers": true, "initContainers": true, "ephemeralContainers": true}

func (w *walk) value(field, key string, v any) {
	switch {
	case key == "annotations":
		w.annotations(field, v)
		return
	case countFields[key]:
		w.count(field, v)
	case containerFields[key]:
		w.containers(field, v)
	case key == "image":
		w.image(strings.TrimSuffix(field, ".image"), v)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, below := range slices.Sorted(maps.Keys(v)) {
			w.value(field+"."+below, below, v[below])
		}
	case []any:
		for n := range v {
			w.item(fmt.Sprintf("%s[%d]", field, n), v[n], containerFields[key])
		}
	}
}

// item handles an item of a list. The image of a container has already been handled.
func (w *walk) item(field string, v any, container bool) {
	if object, ok := v.(map[string]any); ok && container {
		bare := maps.Clone(object)
		delete(bare, "image")
		v = bare
	}
	w.value(field, "", v)
}

// image handles an image that is not a container's: a custom resource's, which its controller runs,
// or a volume's.
func (w *walk) image(field string, v any) {
	image, ok := v.(string)
	if volume, is := v.(map[string]any); is {
		image, ok = volume["reference"].(string)
	}
	if ok && image != "" {
		w.in.Containers = append(w.in.Containers, runnerapi.ContainerIntent{Field: field, Image: image, Partial: true})
	}
}

func (w *walk) annotations(field string, v any) {
	keys, ok := v.(map[string]any)
	if !ok {
		return
	}
	w.in.Annotations = append(w.in.Annotations, named(field, keys)...)
}

func (w *walk) count(field string, v any) {
	most := float64(math.MaxInt32)
	var n float64
	switch v := v.(type) {
	case int64:
		n = float64(v)
	case float64:
		n = math.Ceil(v)
	default:
		return
	}
	w.in.Counts = append(w.in.Counts, runnerapi.CountIntent{Field: field, Pods: int32(max(min(n, most), 0))})
}

func (w *walk) containers(field string, v any) {
	list, _ := v.([]any)
	for n := range list {
		c, ok := list[n].(map[string]any)
		if !ok {
			continue
		}
		in := runnerapi.ContainerIntent{Field: fmt.Sprintf("%s[%d]", field, n)}
		in.Name, _ = c["name"].(string)
		in.Image, _ = c["image"].(string)
		in.Partial = in.Image == "" && !w.known
		resources, _ := c["resources"].(map[string]any)
		limits, _ := resources["limits"].(map[string]any)
		in.Limits.CPU, in.Limits.Memory = w.quantity(in.Field, limits["cpu"]), w.quantity(in.Field, limits["memory"])
		w.in.Containers = append(w.in.Containers, in)
	}
}

// quantity returns a quantity in Kubernetes' own form.
func (w *walk) quantity(field string, v any) string {
	if v == nil {
		return ""
	}
	q, err := resource.ParseQuantity(fmt.Sprint(v))
	if err != nil {
		w.err = unreadable(field+".resources.limits", err.Error())
		return ""
	}
	return q.String()
}

func join(a, b string) string {
	if b == "" {
		return a
	}
	return a + "." + b
}
