package components

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"helm.sh/helm/v4/pkg/action"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/cli-runtime/pkg/resource"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// fieldManager is the manager of the resource definitions that an Installer has created:
	// https://kubernetes.io/docs/reference/using-api/server-side-apply/#managers
	fieldManager   = "pipeops-components"
	definitionsFix = "bring the resource definitions in the cluster to the version of the chart, or set the mode of the component to never"
	// establishedEvery is how often a new definition is read until the API server serves it.
	establishedEvery = 200 * time.Millisecond
)

// ensureDefinitions creates the resource definitions of a chart, and brings those that an Installer
// created to the chart's version. Helm only creates them. Definitions by others stay, and one that
// lacks a version of the chart's is refused: what the chart installs would fail later.
func ensureDefinitions(ctx context.Context, cfg *action.Configuration, ch *chart.Chart) error {
	var changed []*resource.Info
	for _, crd := range ch.CRDObjects() {
		list, err := cfg.KubeClient.Build(bytes.NewReader(crd.File.Data), false)
		if err != nil {
			return explained(err)
		}
		for _, info := range list {
			applied, err := ensureDefinition(info, ch.Name())
			if err != nil {
				return err
			}
			if applied {
				changed = append(changed, info)
			}
		}
	}
	if len(changed) == 0 {
		return nil
	}
	for _, info := range changed {
		if err := awaitEstablished(ctx, info); err != nil {
			return err
		}
	}
	return rediscover(cfg)
}

// ensureDefinition reports whether it has applied a definition.
func ensureDefinition(info *resource.Info, chartName string) (bool, error) {
	wanted, versions := info.Object.DeepCopyObject(), versionsOf(info.Object)
	err := info.Get()
	switch {
	case apierrors.IsNotFound(err):
		return true, applyDefinition(info, wanted)
	case err != nil:
		return false, translated(err, "reading the resource definition "+info.Name)
	case isOurs(info.Object):
		return true, applyDefinition(info, wanted)
	}
	there := versionsOf(info.Object)
	if n := slices.IndexFunc(versions, func(v string) bool { return !slices.Contains(there, v) }); n >= 0 {
		return false, problem.Errorf(problem.Conflict, definitionsFix, "the resource definition %s is of another version: it lacks %s, which chart %s needs",
			info.Name, versions[n], chartName)
	}
	return false, nil
}

func applyDefinition(info *resource.Info, wanted runtime.Object) error {
	data, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	force := true // others that changed a field of ours meant another version
	_, err = resource.NewHelper(info.Client, info.Mapping).WithFieldManager(fieldManager).
		Patch("", info.Name, types.ApplyPatchType, data, &metav1.PatchOptions{Force: &force})
	return translated(err, "applying the resource definition "+info.Name)
}

// isOurs reports whether an Installer created a definition.
func isOurs(definition any) bool {
	object, err := meta.Accessor(definition)
	return err == nil && slices.ContainsFunc(object.GetManagedFields(), func(e metav1.ManagedFieldsEntry) bool { return e.Manager == fieldManager })
}

// awaitEstablished returns when the API server serves a definition.
func awaitEstablished(ctx context.Context, info *resource.Info) error {
	return wait.PollUntilContextCancel(ctx, establishedEvery, true, func(context.Context) (bool, error) {
		if err := info.Get(); err != nil {
			return false, translated(err, "reading the resource definition "+info.Name)
		}
		return established(info.Object), nil
	})
}

func established(definition runtime.Object) bool {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		return false
	}
	list, _, _ := unstructured.NestedSlice(content, "status", "conditions") // absent is empty
	return slices.ContainsFunc(list, func(item any) bool {
		condition, ok := item.(map[string]any)
		return ok && condition["type"] == "Established" && condition["status"] == "True"
	})
}

// rediscover makes Helm see new kinds.
func rediscover(cfg *action.Configuration) error {
	discovery, err := cfg.RESTClientGetter.ToDiscoveryClient()
	if err != nil {
		return err
	}
	discovery.Invalidate()
	mapper, err := cfg.RESTClientGetter.ToRESTMapper()
	if err != nil {
		return err
	}
	meta.MaybeResetRESTMapper(mapper)
	return nil
}

// versionsOf returns the versions that a resource definition serves.
func versionsOf(definition runtime.Object) (served []string) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(definition)
	if err != nil {
		return nil
	}
	list, _, _ := unstructured.NestedSlice(content, "spec", "versions") // absent is empty
	for _, item := range list {
		if version, ok := item.(map[string]any); ok && version["served"] == true {
			name, _ := version["name"].(string)
			served = append(served, name)
		}
	}
	return served
}
