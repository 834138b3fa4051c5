package harness

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ScaleAgent sets the number of the agent's replicas and waits until all of them are
// ready and no others are left.
func (s *System) ScaleAgent(ctx context.Context, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if err := s.patchAgent(ctx, patch); err != nil {
		return err
	}
	return s.awaitReplicas(ctx, replicas)
}

// RolloutAgent replaces the agent's pods as an update does, and waits for the end of it.
func (s *System) RolloutAgent(ctx context.Context, mark string) error {
	before, err := s.Kube.Clientset.AppsV1().Deployments(agentNamespace).Get(ctx, agentObject, metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"pipeops.test/rollout":%q}}}}}`, mark)
	if err := s.patchAgent(ctx, patch); err != nil {
		return err
	}
	return s.awaitReplicas(ctx, int(*before.Spec.Replicas))
}

func (s *System) patchAgent(ctx context.Context, patch []byte) error {
	_, err := s.Kube.Clientset.AppsV1().Deployments(agentNamespace).
		Patch(ctx, agentObject, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

func (s *System) awaitReplicas(ctx context.Context, want int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*agentTimeout)
	defer cancel()
	return Eventually(ctx, fmt.Sprintf("%d replicas of the agent are ready", want), func(ctx context.Context) error {
		d, err := s.Kube.Clientset.AppsV1().Deployments(agentNamespace).Get(ctx, agentObject, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := s.Kube.Clientset.CoreV1().Pods(agentNamespace).List(ctx, metav1.ListOptions{LabelSelector: agentSelector})
		if err != nil {
			return err
		}
		st := d.Status
		if st.ObservedGeneration < d.Generation || int(st.UpdatedReplicas) != want || int(st.ReadyReplicas) != want || len(pods.Items) != want {
			return fmt.Errorf("%d pods, %d up to date, %d ready", len(pods.Items), st.UpdatedReplicas, st.ReadyReplicas)
		}
		return nil
	})
}

// AgentPods returns the agent's pods, but for those on their way out.
func (s *System) AgentPods(ctx context.Context) ([]corev1.Pod, error) {
	list, err := s.Kube.Clientset.CoreV1().Pods(agentNamespace).List(ctx, metav1.ListOptions{LabelSelector: agentSelector})
	if err != nil {
		return nil, err
	}
	var pods []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			pods = append(pods, p)
		}
	}
	return pods, nil
}
