package appcache

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// DeleteOwn deletes exactly this object if it is the App's.
func (s *Store) DeleteOwn(ctx context.Context, a *v1alpha1.App, o client.Object) error {
	if !workload.Owns(a, o) || !o.GetDeletionTimestamp().IsZero() {
		return nil
	}
	return s.Delete(ctx, o, metav1.DeletePropagationBackground)
}

// Delete deletes exactly this object and its dependents: in the background, or before the
// object itself.
func (s *Store) Delete(ctx context.Context, o client.Object, how metav1.DeletionPropagation) error {
	err := s.Live.Delete(ctx, o, client.Preconditions{UID: new(o.GetUID())}, client.PropagationPolicy(how))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %T %s: %w", o, o.GetName(), err)
	}
	return nil
}

// Record leaves a Kubernetes Event on the App, for kubectl describe and the
// App's events.
func (s *Store) Record(ctx context.Context, a *v1alpha1.App, reason, message string) {
	now := metav1.NewTime(s.now())
	ev := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, GenerateName: a.Name + "-", Labels: objectmeta.AppLabels(a.Name)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Namespace: a.Namespace, Name: a.Name, UID: a.UID,
		},
		Type: corev1.EventTypeNormal, Reason: reason, Message: message[:min(len(message), maxEventMessage)],
		Source: corev1.EventSource{Component: objectmeta.FieldManager}, ReportingController: objectmeta.FieldManager,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	if err := s.Live.Create(ctx, ev, client.FieldOwner(objectmeta.FieldManager)); err != nil {
		s.log.Warn().Err(err).Str("namespace", a.Namespace).Str("app", a.Name).Str("reason", reason).
			Msg("failed to record an event")
	}
}

// maxEventMessage is what Kubernetes takes.
const maxEventMessage = 1024
