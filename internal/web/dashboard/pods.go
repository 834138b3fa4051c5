package dashboard

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/web/apppage"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func addPods(s *apppage.Inside, pods []*corev1.Pod) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
	for _, pod := range pods[:min(len(pods), maxPods)] {
		s.Pods = append(s.Pods, podRowOf(pod))
	}
	s.MorePods = max(len(pods)-maxPods, 0)
}

func podRowOf(pod *corev1.Pod) apppage.Pod {
	row := apppage.Pod{Name: pod.Name, Node: pod.Spec.NodeName, Created: pod.CreationTimestamp.Time, State: string(pod.Status.Phase)}
	for _, c := range pod.Status.ContainerStatuses {
		row.Restarts += c.RestartCount
		switch {
		case c.State.Waiting != nil && c.State.Waiting.Reason != "":
			row.State = c.State.Waiting.Reason
		case c.State.Terminated != nil && c.State.Terminated.Reason != "":
			row.State = c.State.Terminated.Reason
		}
	}
	switch {
	case pod.DeletionTimestamp != nil:
		row.State = "Terminating"
	case workload.PodReady(pod):
		row.State = "Ready"
	case row.State == string(corev1.PodRunning):
		row.State = "Not ready"
	}
	return row
}

// warnings returns the newest warning events about some pods.
func (d *appPages) warnings(ctx context.Context, namespace string, pods []*corev1.Pod) ([]runnerapi.ClusterEvent, error) {
	if len(pods) == 0 {
		return nil, nil
	}
	all, err := d.cluster.facts.PodWarnings(ctx, namespace)
	others := func(e runnerapi.ClusterEvent) bool {
		return !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return pod.Name == e.Object.Name })
	}
	all = slices.DeleteFunc(all, others)
	return all[:min(len(all), maxWarnings)], err
}
