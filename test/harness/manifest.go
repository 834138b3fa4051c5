package harness

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
)

// agentObject is the name of all of the agent's own objects.
const agentObject = "pipeops-agent"

// agentObjects returns the objects of deployments/agent.yaml, as an operator would apply them, and
// a first namespace for Apps. In their cluster that is another one: they may well have one of that
// name.
func (s *System) agentObjects() ([]*unstructured.Unstructured, error) {
	objects, err := readManifest(filepath.Join(Root(), "deployments", "agent.yaml"))
	if err != nil || s.Theirs != nil {
		return objects, err
	}
	first, err := readManifest(filepath.Join(Root(), "test", "kubetest", "production.yaml"))
	return append(objects, first...), err
}

// readManifest reads a YAML file of several documents.
func readManifest(path string) (objects []*unstructured.Unstructured, err error) {
	text, err := inputs.Read(path)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 64<<10)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(&obj.Object)
		switch {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		case len(obj.Object) > 0:
			objects = append(objects, obj)
		}
	}
}

// namespaceObject returns a Namespace.
func namespaceObject(name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	obj.SetName(name)
	return obj
}

// setImage makes the manifest's Deployment run the image that was just built.
func setImage(obj *unstructured.Unstructured, image string) error {
	if obj.GetKind() != "Deployment" || obj.GetName() != agentObject {
		return nil
	}
	path := []string{"spec", "template", "spec", "containers"}
	containers, _, err := unstructured.NestedSlice(obj.Object, path...)
	if err != nil {
		return err
	}
	for _, c := range containers {
		c.(map[string]any)["image"] = image
	}
	return unstructured.SetNestedSlice(obj.Object, containers, path...)
}

// settings returns the config map and the secret that the manifest's head asks an operator to
// create.
func (s *System) settings(name, token string) []*unstructured.Unstructured {
	object := func(kind, field string, values map[string]any) *unstructured.Unstructured {
		obj := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind, field: values}}
		obj.SetName(agentObject)
		obj.SetNamespace(agentNamespace)
		return obj
	}
	values := map[string]any{
		"PIPEOPS_CONTROL_PLANE_URL": s.APIURL(), "CLUSTER_NAME": name, "PIPEOPS_STABILIZATION": "2s", "LOG_LEVEL": cmp.Or(s.AgentLogLevel, "debug"),
	}
	for k, v := range s.AgentSettings {
		values[k] = v
	}
	return []*unstructured.Unstructured{
		object("ConfigMap", "data", values),
		object("Secret", "stringData", map[string]any{"AGENT_TOKEN": token}),
	}
}
