package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

const (
	// ownContainer is the agent's in its own pods.
	ownContainer = "agent"
	// updateNote is the annotation that keeps the record of the agent's update of
	// itself: it changes together with the image, and outlives every pod.
	updateNote = "pipeops.io/self-update"
)

// Own is the Deployment that the agent runs in.
type Own struct {
	Deployment *appsv1.Deployment
	Image      string // of the agent's container
	Note       []byte // what was kept with SetOwn; nil for nothing
}

// Own reads the agent's own Deployment.
func (k *Client) Own(ctx context.Context) (Own, error) {
	d := &appsv1.Deployment{}
	if err := k.client.Get(ctx, client.ObjectKey{Namespace: k.opts.Namespace, Name: objectmeta.FieldManager}, d); err != nil {
		return Own{}, kubeproblem.From(err, "reading the agent's own Deployment")
	}
	o := Own{Deployment: d}
	if note, ok := d.Annotations[updateNote]; ok {
		o.Note = []byte(note)
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == ownContainer {
			o.Image = c.Image
		}
	}
	if o.Image == "" {
		return o, fmt.Errorf("the Deployment %s has no container %q", objectmeta.FieldManager, ownContainer)
	}
	return o, nil
}

// Replicas returns the desired number of pods.
func (o Own) Replicas() int32 {
	if n := o.Deployment.Spec.Replicas; n != nil {
		return *n
	}
	return 1
}

// Rolled reports whether all pods are of the newest spec and have been ready for as long as they
// have to be.
func (o Own) Rolled() bool {
	d, want := o.Deployment, o.Replicas()
	return d.Status.ObservedGeneration >= d.Generation && d.Status.UpdatedReplicas >= want && d.Status.AvailableReplicas >= want &&
		d.Status.Replicas == d.Status.UpdatedReplicas
}

// SetOwn writes a note to the agent's own Deployment, and another image unless that is empty: both
// or nothing, and nothing if the Deployment has changed since it was read.
func (k *Client) SetOwn(ctx context.Context, o Own, image string, note []byte) error {
	change := map[string]any{"metadata": map[string]any{
		"resourceVersion": o.Deployment.ResourceVersion,
		"annotations":     map[string]any{updateNote: string(note)},
	}}
	if image != "" {
		change["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{"name": ownContainer, "image": image}},
		}}}
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: k.opts.Namespace, Name: objectmeta.FieldManager}}
	err = k.client.Patch(ctx, d, client.RawPatch(types.StrategicMergePatchType, patch), client.FieldOwner(objectmeta.FieldManager))
	return kubeproblem.From(err, "changing the agent's own Deployment")
}

// PodsOf returns the agent's own pods that have that image.
func (k *Client) PodsOf(ctx context.Context, o Own, image string) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(o.Deployment.Spec.Selector)
	if err != nil {
		return nil, err
	}
	list := &corev1.PodList{}
	if err := k.client.List(ctx, list, client.InNamespace(k.opts.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, kubeproblem.From(err, "reading the agent's own pods")
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		p := &list.Items[i]
		if slices.ContainsFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == ownContainer && c.Image == image }) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}
