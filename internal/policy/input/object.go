package input

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

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

// PodSpec returns the spec of the pods that an object makes, their labels, and where the spec is.
// It returns nil for other objects.
func PodSpec(u *unstructured.Unstructured) (spec map[string]any, labels map[string]string, at string) {
	path := pods[denylist.Kind(u.GroupVersionKind())]
	if path == nil {
		return nil, nil, ""
	}
	value, _, err := unstructured.NestedFieldNoCopy(u.Object, path...)
	if err != nil {
		return nil, nil, ""
	}
	spec, _ = value.(map[string]any)
	labels, _, _ = unstructured.NestedStringMap(u.Object, append(slices.Clone(path[:len(path)-1]), "metadata", "labels")...)
	return spec, labels, strings.Join(path, ".")
}

// Object returns what an object of any kind brings. Fields are those of the object. It returns an
// error for an object that runs pods and cannot be read: such an object is not allowed through.
func Object(u *unstructured.Unstructured) (runnerapi.ObjectIntent, error) {
	kind := denylist.Kind(u.GroupVersionKind())
	if kind == kindApp {
		return ofApp(u)
	}
	w := walk{in: runnerapi.ObjectIntent{Kind: kind, Name: u.GetName()}}
	if err := readable(u); err != nil {
		return w.in, err
	}
	w.known = RunsPods(kind)
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
	w.defaultCount(kind, u.Object)
	gvk := u.GroupVersionKind()
	if same := renamed[gvk.Group]; same != "" {
		gvk.Group = same
	}
	w.in.Hosts = hosts(denylist.Kind(gvk), u.Object)
	w.in.Outside = append(w.in.Outside, unnamed(gvk, w.in.Hosts)...)
	if w.err == nil {
		w.in.Rights, w.err = rights(u)
	}
	return w.in, w.err
}

// ofApp returns the App's own, with the object's fields.
func ofApp(u *unstructured.Unstructured) (runnerapi.ObjectIntent, error) {
	var app struct {
		Spec runnerapi.AppSpec `json:"spec"`
	}
	if err := decode.CheckTypes(u.Object, app); err != nil {
		return runnerapi.ObjectIntent{Kind: kindApp}, mistyped(err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &app); err != nil {
		return runnerapi.ObjectIntent{Kind: kindApp}, unreadable("spec", "cannot be read as that of an App")
	}
	in := App(app.Spec)
	in.Kind, in.Name = kindApp, u.GetName()
	within(&in, "spec")
	w := walk{in: in}
	meta, _ := u.Object["metadata"].(map[string]any)
	w.annotations("metadata.annotations", meta["annotations"])
	return w.in, w.err
}

// readable refuses an object of Kubernetes' own kinds that the API server could not decode either.
func readable(u *unstructured.Unstructured) error {
	sample, err := scheme.Scheme.New(u.GroupVersionKind())
	if err != nil { // a kind of others, which the API server checks
		return nil //nolint:nilerr // as above
	}
	return mistyped(decode.CheckTypes(u.Object, sample))
}

// mistyped returns the error of CheckTypes as a problem.
func mistyped(err error) error {
	if e := (&decode.Error{}); errors.As(err, &e) {
		return unreadable(e.Field, e.Message)
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

// defaultCounts are the kinds that have many pods where they do not bound them, by a field of their
// spec. Those of KEDA have 100.
var defaultCounts = map[string]runnerapi.CountIntent{
	"ScaledObject.keda.sh": {Field: "maxReplicaCount", Pods: 100},
	"ScaledJob.keda.sh":    {Field: "maxReplicaCount", Pods: 100},
}

// containerFields hold the containers of a pod.
var containerFields = map[string]bool{"containers": true, "initContainers": true, "ephemeralContainers": true}

func (w *walk) value(field, key string, v any) {
	w.outside(field, key, v)
	w.placement(field, key, v)
	switch {
	case key == "annotations":
		w.annotations(field, v)
		return
	case countFields[key]:
		w.count(field, v)
	case containerFields[key]:
		w.containers(field, v)
	case key == "imagePullSecrets":
		w.pullSecrets(v)
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

// maxPullSecrets bounds the Secrets that an image may be pulled with.
const maxPullSecrets = 16

func (w *walk) pullSecrets(v any) {
	list, _ := v.([]any)
	for _, item := range list {
		secret, _ := item.(map[string]any)
		if name, _ := secret["name"].(string); name != "" && len(w.in.PullSecrets) < maxPullSecrets {
			w.in.PullSecrets = append(w.in.PullSecrets, name)
		}
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

// defaultCount gathers the number of pods of an object that does not name it.
func (w *walk) defaultCount(kind string, object map[string]any) {
	n, known := defaultCounts[kind]
	spec, _ := object["spec"].(map[string]any)
	if known && spec[n.Field] == nil {
		n.Field = "spec." + n.Field
		w.in.Counts = append(w.in.Counts, n)
	}
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
