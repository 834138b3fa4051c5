package manifests

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// kinds are those that the cluster serves. They are read when they are first asked for, and kept
// until forget: the mapper itself never drops a kind whose definition was deleted.
type kinds struct {
	read func() (meta.RESTMapper, error)

	mu    sync.Mutex
	known meta.RESTMapper
}

// forget makes no request.
func (k *kinds) forget() error {
	next, err := k.read()
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known = next
	return nil
}

func (k *kinds) mapping(gvk schema.GroupVersionKind) (*meta.RESTMapping, error) {
	k.mu.Lock()
	known := k.known
	k.mu.Unlock()
	return known.RESTMapping(gvk.GroupKind(), gvk.Version)
}

func noKind(ref Ref) error {
	return problem.Errorf(problem.Invalid, "correct apiVersion and kind, or apply the CustomResourceDefinition first or in the same set",
		"the cluster has no kind %s of %s", ref.Kind, ref.APIVersion)
}

// definedKinds returns the kinds that the set's CustomResourceDefinitions define.
func definedKinds(objects []*unstructured.Unstructured) map[schema.GroupVersionKind]*meta.RESTMapping {
	kinds := map[schema.GroupVersionKind]*meta.RESTMapping{}
	for _, u := range objects {
		if kindOf(refOf(u)) != kindCRD {
			continue
		}
		scope := meta.RESTScope(meta.RESTScopeNamespace)
		if nested(u, "spec", "scope") == "Cluster" {
			scope = meta.RESTScopeRoot
		}
		versions, _, _ := unstructured.NestedSlice(u.Object, "spec", "versions")
		for _, version := range versions {
			v, _ := version.(map[string]any)
			name, _ := v["name"].(string)
			gvk := schema.GroupVersionKind{Group: nested(u, "spec", "group"), Version: name, Kind: nested(u, "spec", "names", "kind")}
			kinds[gvk] = &meta.RESTMapping{
				GroupVersionKind: gvk, Scope: scope,
				Resource: schema.GroupVersionResource{Group: gvk.Group, Version: name, Resource: nested(u, "spec", "names", "plural")},
			}
		}
	}
	return kinds
}
