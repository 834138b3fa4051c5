package workloadhealth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// stopNote is what the agent leaves on a workload that it stopped: the annotation
// objectmeta.Stopped.
type stopNote struct {
	Diagnosis runnerapi.Diagnosis `json:"diagnosis"`
	// Generation is the generation of the stop.
	Generation int64 `json:"generation"`
	// Template is a digest of the held pod template; empty if there are no pods.
	Template string `json:"template,omitempty"`
}

// standing returns why a workload is stopped, or nil if it is not. Another spec, or scaling up
// again, lifts the stop.
func standing(w client.Object) *runnerapi.Diagnosis {
	text := w.GetAnnotations()[objectmeta.Stopped]
	if text == "" {
		return nil
	}
	var note stopNote
	if json.Unmarshal([]byte(text), &note) != nil {
		return nil
	}
	template, replicas := podsOfSpec(w)
	switch {
	case template == nil:
		return nil
	case note.Generation == w.GetGeneration(), note.Template == "" && replicas == 0:
		return &note.Diagnosis
	case note.Template != "" && note.Template == digest(template):
		return &note.Diagnosis
	}
	return nil
}

// podsOfSpec returns the pod template of a workload that can be stopped, and the number of pods.
func podsOfSpec(w client.Object) (*corev1.PodTemplateSpec, int32) {
	switch w := w.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template, ptr.Deref(w.Spec.Replicas, 1)
	case *appsv1.StatefulSet:
		return &w.Spec.Template, ptr.Deref(w.Spec.Replicas, 1)
	case *appsv1.ReplicaSet:
		return &w.Spec.Template, ptr.Deref(w.Spec.Replicas, 1)
	}
	return nil, 0
}

func digest(t *corev1.PodTemplateSpec) string {
	text, err := json.Marshal(t)
	if err != nil {
		return "" // of a template: impossible
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// The marks of a Helm release's objects.
const (
	helmBy      = "app.kubernetes.io/managed-by"
	helmRelease = "meta.helm.sh/release-name"
	helmManager = "helm"
)

// managerOf returns the field manager of what the agent's set or release applies; empty for a
// workload that the agent may not stop.
func managerOf(ctx context.Context, api client.Client, w client.Object) (string, error) {
	notes := w.GetAnnotations()
	if notes[objectmeta.SetOf] != "" {
		return objectmeta.FieldManager, nil
	}
	name := notes[helmRelease]
	if w.GetLabels()[helmBy] != "Helm" || name == "" {
		return "", nil
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
	err := api.List(ctx, list, client.InNamespace(w.GetNamespace()), client.MatchingLabels{"owner": "helm", "name": name})
	if err != nil {
		return "", fmt.Errorf("read the revisions of release %s: %w", name, err)
	}
	newest, ours := 0, false
	for i := range list.Items {
		marks := list.Items[i].Labels
		if version, err := strconv.Atoi(marks["version"]); err == nil && version > newest {
			newest, ours = version, marks[objectmeta.Release] == marks["version"]
		}
	}
	if !ours { // the helm program's
		return "", nil
	}
	return helmManager, nil
}

// hold restores what ran before a workload's newest spec, or removes its pods if nothing runs. It
// applies that as the manager of the workload's set or release: their next apply or upgrade owns
// all fields, and so lifts the stop.
func hold(ctx context.Context, api client.Client, live *unstructured.Unstructured, w client.Object, manager string, d *runnerapi.Diagnosis) error {
	good, err := lastGood(ctx, api, w)
	if err != nil {
		return err
	}
	u := live.DeepCopy()
	unstructured.RemoveNestedField(u.Object, "status")
	for _, field := range []string{"managedFields", "creationTimestamp", "generation"} {
		unstructured.RemoveNestedField(u.Object, "metadata", field)
	}
	note := stopNote{Diagnosis: *d, Generation: live.GetGeneration() + 1}
	if good != nil {
		note.Template = digest(good)
		raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(good)
		if err != nil {
			return err
		}
		err = unstructured.SetNestedMap(u.Object, raw, "spec", "template")
		if err != nil {
			return err
		}
	} else if err := unstructured.SetNestedField(u.Object, int64(0), "spec", "replicas"); err != nil {
		return err
	}
	text, err := json.Marshal(note)
	if err != nil {
		return err
	}
	u.SetAnnotations(marked(u.GetAnnotations(), string(text)))
	return applyTo(ctx, api, u, live.GetGeneration(), manager)
}

// applyTo applies what a workload's generation is to become. The patch contains the version: a
// change by another client meanwhile is not undone. The workload's status changes with each pod
// that ends, so a conflict means nothing while the generation is the same.
func applyTo(ctx context.Context, api client.Client, u *unstructured.Unstructured, generation int64, manager string) error {
	return kubeproblem.Race(ctx, func() error {
		now := &unstructured.Unstructured{}
		now.SetGroupVersionKind(u.GroupVersionKind())
		if err := api.Get(ctx, client.ObjectKeyFromObject(u), now); err != nil {
			return err
		}
		if now.GetUID() != u.GetUID() || now.GetGeneration() != generation {
			return errors.New("its spec has changed meanwhile")
		}
		u.SetResourceVersion(now.GetResourceVersion())
		body, err := u.MarshalJSON()
		if err != nil {
			return err
		}
		return api.Patch(ctx, u.DeepCopy(), client.RawPatch(types.ApplyPatchType, body), client.ForceOwnership, client.FieldOwner(manager))
	})
}

// marked returns the annotations with the note, without those that controllers keep.
func marked(have map[string]string, note string) map[string]string {
	out := map[string]string{objectmeta.Stopped: note}
	for k, v := range have {
		if k != objectmeta.Stopped && !strings.HasPrefix(k, "deployment.kubernetes.io/") {
			out[k] = v
		}
	}
	return out
}

// lastGood returns the pod template before the newest one whose pods are still ready, or nil.
func lastGood(ctx context.Context, api client.Client, w client.Object) (*corev1.PodTemplateSpec, error) {
	switch w := w.(type) {
	case *appsv1.Deployment:
		return beforeDeployment(ctx, api, w)
	case *appsv1.StatefulSet:
		return beforeStatefulSet(ctx, api, w)
	}
	return nil, nil
}

func beforeDeployment(ctx context.Context, api client.Client, d *appsv1.Deployment) (*corev1.PodTemplateSpec, error) {
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return nil, err
	}
	var list appsv1.ReplicaSetList
	if err := api.List(ctx, &list, client.InNamespace(d.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the replica sets of deployment %s: %w", d.Name, err)
	}
	var good *corev1.PodTemplateSpec
	newest := 0
	for i := range list.Items {
		rs := &list.Items[i]
		number, err := strconv.Atoi(rs.Annotations[objectmeta.DeploymentRevision])
		if err != nil || !metav1.IsControlledBy(rs, d) || rs.Status.ReadyReplicas == 0 || rs.Annotations[objectmeta.DeploymentRevision] == d.Annotations[objectmeta.DeploymentRevision] {
			continue
		}
		if number > newest {
			newest, good = number, rs.Spec.Template.DeepCopy()
		}
	}
	if good != nil {
		delete(good.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	}
	return good, nil
}

func beforeStatefulSet(ctx context.Context, api client.Client, s *appsv1.StatefulSet) (*corev1.PodTemplateSpec, error) {
	if s.Status.CurrentRevision == s.Status.UpdateRevision {
		return nil, nil
	}
	g := Gatherer{Namespace: s.Namespace, Name: pathOf(s), Objects: api, Live: api}
	pods, err := g.podsOf(ctx, s.Spec.Selector)
	if err != nil {
		return nil, err
	}
	serves := only(pods, func(p *corev1.Pod) bool {
		return p.Labels[appsv1.ControllerRevisionHashLabelKey] == s.Status.CurrentRevision && diagnose.Ready(p)
	})
	if len(serves) == 0 {
		return nil, nil
	}
	var list appsv1.ControllerRevisionList
	if err := api.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list the revisions of statefulset %s: %w", s.Name, err)
	}
	for i := range list.Items {
		if list.Items[i].Name != s.Status.CurrentRevision {
			continue
		}
		var data struct {
			Spec struct {
				Template corev1.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		if err := json.Unmarshal(list.Items[i].Data.Raw, &data); err != nil {
			return nil, fmt.Errorf("read revision %s: %w", s.Status.CurrentRevision, err)
		}
		return &data.Spec.Template, nil
	}
	return nil, nil
}
