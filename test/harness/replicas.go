package harness

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// AgentLeader returns the pod of the replica that leads.
func (s *System) AgentLeader(ctx context.Context) (string, error) {
	lease, err := s.Kube.Clientset.CoordinationV1().Leases(agentNamespace).Get(ctx, agentObject, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return "", errors.New("no replica of the agent leads")
	}
	return *lease.Spec.HolderIdentity, nil
}

// KillReplica ends a replica as the death of its node does: its process has no time to react, and
// its pod does not come back. In a cluster elsewhere it has a short time.
func (s *System) KillReplica(ctx context.Context, pod string) error {
	if s.Cluster != nil {
		pids, err := s.agentPIDs()
		if err != nil {
			return err
		}
		pid, ok := pids[pod]
		if !ok {
			return fmt.Errorf("pod %s has no process of the agent: %v", pod, pids)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	err := s.Kube.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: agentNamespace, Name: pod}}, client.GracePeriodSeconds(0))
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// PodLog returns the log of an agent's pod.
func (s *System) PodLog(ctx context.Context, pod string) (string, error) {
	text, err := s.Kube.Clientset.CoreV1().Pods(agentNamespace).GetLogs(pod, &corev1.PodLogOptions{}).DoRaw(ctx)
	return string(text), err
}
