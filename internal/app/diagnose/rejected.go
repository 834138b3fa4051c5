package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// manyRejected pods that nodes refused within rejectedIn are a loop: a ReplicaSet
	// makes the next one at once, without a back-off and without an end.
	manyRejected = 5
	rejectedIn   = time.Minute
)

// rejected finds pods that the scheduler placed and the kubelet refused, one
// after the other. Only a ReplicaSet leaves them behind.
func rejected(ev *Evidence) Finding {
	if ev.ReplicaSet == nil {
		return Finding{}
	}
	var refused []*corev1.Pod
	for _, pod := range ev.Pods {
		if pod.DeletionTimestamp.IsZero() && refusedByNode(pod) {
			refused = append(refused, pod)
		}
	}
	slices.SortStableFunc(refused, func(a, b *corev1.Pod) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	if len(refused) < manyRejected || ev.ReplicaSet.Status.ReadyReplicas > 0 {
		return Finding{}
	}
	newest := refused[0]
	if newest.CreationTimestamp.Sub(refused[manyRejected-1].CreationTimestamp.Time) > rejectedIn {
		return Finding{}
	}
	return Finding{Stop: true, Crashed: true, Diagnosis: &runnerapi.Diagnosis{
		Cause: runnerapi.CauseAdmissionRefused, Object: "pod/" + newest.Name,
		Message: fmt.Sprintf("node %s refuses the pods as soon as they are placed: %s; after %d pods the agent stopped the rollout",
			newest.Spec.NodeName, said(newest), len(refused)),
		Fix: rejectedFix(newest.Status.Reason) + "; then deploy the App again, or restart it",
	}}
}

// refusedByNode says whether the kubelet ended a pod before it started anything.
func refusedByNode(pod *corev1.Pod) bool {
	if pod.Status.Phase != corev1.PodFailed || pod.Spec.NodeName == "" {
		return false
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if s.ContainerID != "" {
			return false
		}
	}
	return true
}

// said is what the pod's status says of its end.
func said(pod *corev1.Pod) string {
	message := strings.TrimPrefix(pod.Status.Message, "Pod was rejected: ")
	return clip(strings.TrimSuffix(cmp.Or(pod.Status.Reason, "Failed")+": "+message, ": "))
}

func rejectedFix(reason string) string {
	switch {
	case reason == "SysctlForbidden":
		return "take the sysctl out of the pods, or allow it on the nodes (--allowed-unsafe-sysctls of the kubelet)"
	case strings.HasPrefix(reason, "OutOf"), reason == "UnexpectedAdmissionError":
		return "ask for less in resources, or have the pods placed by the scheduler: what sets nodeName passes it by"
	case reason == "NodeAffinity":
		return "correct what sets nodeName: the pods' node selector does not fit that node"
	case reason == "Evicted":
		return "free disk space or memory on the node (kubectl describe node)"
	case reason == "AppArmor", reason == "Seccomp":
		return "correct the profile that the pods name, or install it on the nodes"
	}
	return "change in the App's spec what the message names (kubectl describe node)"
}
