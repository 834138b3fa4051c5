package controller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
)

// unblock lets a StatefulSet roll out its newest spec. Kubernetes waits for every pod to be ready
// before it replaces the next. So it waits for ever for a pod that an older spec broke
// (kubernetes#67250). Such a pod serves no requests, so unblock deletes it, and it comes back with
// the newest spec. It leaves a pod alone that only starts slowly, and every pod while another one
// is starting.
func (c *Controller) unblock(ctx context.Context, a *v1alpha1.App, s *appsv1.StatefulSet) error {
	if !workload.FiguresOf(s).Seen {
		return nil
	}
	pods, err := c.store.Pods(ctx, a)
	if err != nil {
		return err
	}
	var broken *corev1.Pod
	for _, pod := range pods {
		switch old := workload.RevisionOf(pod) != s.Status.UpdateRevision; {
		case !pod.DeletionTimestamp.IsZero(), !old && !workload.PodReady(pod):
			return nil
		case old && !workload.PodReady(pod):
			broken = pod
		}
	}
	if broken == nil {
		return nil
	}
	finding := diagnose.Find(diagnose.Evidence{Spec: a.Spec, Pods: []*corev1.Pod{broken}, Now: c.now(), Probes: map[types.UID]diagnose.ProbeFailures{}})
	if finding.Diagnosis == nil {
		return nil
	}
	c.log.Info().Str("namespace", a.Namespace).Str("app", a.Name).Str("pod", broken.Name).
		Str("cause", string(finding.Diagnosis.Cause)).Msg("deleting a failing pod of an older spec: it blocks the rollout of the newest")
	if err := c.store.Delete(ctx, broken, metav1.DeletePropagationBackground); err != nil {
		return fmt.Errorf("unblock StatefulSet %s: %w", client.ObjectKeyFromObject(s), err)
	}
	return nil
}
