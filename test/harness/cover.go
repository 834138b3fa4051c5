package harness

import (
	"os"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const (
	coverVolume = "pipeops-agent-coverage"
	coverMount  = "/coverage"
)

// withCoverage makes the agent's pods write their line coverage to $GOCOVERDIR of this machine, if
// `make cover` sets that. The namespace's Pod Security level, restricted, allows no hostPath
// volume, so it uses a PersistentVolume.
func withCoverage(objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	dir := os.Getenv("GOCOVERDIR")
	if dir == "" {
		return objects, nil
	}
	var all []*unstructured.Unstructured
	for _, obj := range objects {
		if obj.GetKind() == "Deployment" && obj.GetName() == agentObject {
			all = append(all, coverageVolume(dir)...)
			if err := mountCoverage(obj); err != nil {
				return nil, err
			}
		}
		all = append(all, obj)
	}
	return all, nil
}

// coverageVolume returns a folder of this machine as a PersistentVolume, and the claim to it.
func coverageVolume(dir string) []*unstructured.Unstructured {
	spec := func(more map[string]any) map[string]any {
		more["accessModes"], more["storageClassName"] = []any{"ReadWriteMany"}, ""
		return more
	}
	volume := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolume",
		"spec": spec(map[string]any{
			"capacity": map[string]any{"storage": "1Gi"},
			"hostPath": map[string]any{"path": dir, "type": "Directory"},
		}),
	}}
	volume.SetName(coverVolume)
	claim := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"spec": spec(map[string]any{
			"volumeName": coverVolume,
			"resources":  map[string]any{"requests": map[string]any{"storage": "1Gi"}},
		}),
	}}
	claim.SetName(coverVolume)
	claim.SetNamespace(agentNamespace)
	return []*unstructured.Unstructured{volume, claim}
}

// mountCoverage mounts the volume into the Deployment's containers.
func mountCoverage(deployment *unstructured.Unstructured) error {
	path := []string{"spec", "template", "spec"}
	pod, _, err := unstructured.NestedMap(deployment.Object, path...)
	if err != nil {
		return err
	}
	add := func(in map[string]any, field string, item map[string]any) {
		list, _ := in[field].([]any)
		in[field] = append(list, item)
	}
	add(pod, "volumes", map[string]any{"name": "coverage", "persistentVolumeClaim": map[string]any{"claimName": coverVolume}})
	for _, c := range pod["containers"].([]any) {
		container := c.(map[string]any)
		add(container, "env", map[string]any{"name": "GOCOVERDIR", "value": coverMount})
		add(container, "volumeMounts", map[string]any{"name": "coverage", "mountPath": coverMount})
	}
	return unstructured.SetNestedMap(deployment.Object, pod, path...)
}
