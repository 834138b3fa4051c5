package input_test

import (
	"encoding/json"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/policy/input"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func has(all []runnerapi.ContainerIntent, image string) bool {
	return slices.ContainsFunc(all, func(c runnerapi.ContainerIntent) bool { return c.Image == image })
}

// FuzzObject: whatever an object has in its fields, it is read or refused, never read in two ways,
// and no image of a pod that can be read is left out.
func FuzzObject(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":3,"template":{"spec":{"containers":[{"name":"web","image":"web:1"}]}}}}`))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Pod","spec":{"initContainers":[{"image":"a"}],"containers":[{"image":"b","resources":{"limits":{"cpu":"1e9"}}}]}}`))
	f.Add([]byte(`{"apiVersion":"pipeops.io/v1alpha1","kind":"App","spec":{"image":"web:1","replicas":2}}`))
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"annotations":{"a":"b"}},"spec":{"rules":[{"host":"shop.example.com"}]}}`))
	f.Add([]byte(`{"apiVersion":"example.com/v1","kind":"Database","spec":{"podTemplate":{"containers":[{"image":7}]},"replicas":-1.5}}`))
	f.Add([]byte(`{"apiVersion":"batch/v1","kind":"CronJob","spec":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var object map[string]any
		if json.Unmarshal(raw, &object) != nil {
			return
		}
		u := &unstructured.Unstructured{Object: object}
		first, err := input.Object(u)
		again, errAgain := input.Object(u)
		one, _ := json.Marshal(first)
		two, _ := json.Marshal(again)
		if (err == nil) != (errAgain == nil) || string(one) != string(two) {
			t.Fatalf("read in two ways:\n%s %v\n%s %v", one, err, two, errAgain)
		}
		if err != nil || u.GetKind() != "Pod" || u.GetAPIVersion() != "v1" {
			return
		}
		containers, _, _ := unstructured.NestedSlice(object, "spec", "containers")
		for _, c := range containers {
			fields, _ := c.(map[string]any)
			image, _ := fields["image"].(string)
			if image != "" && !has(first.Containers, image) {
				t.Fatalf("the image %q is left out: %s", image, one)
			}
		}
	})
}
