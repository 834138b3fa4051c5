package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// manyRejected pods that ended within rejectedIn are a loop: their controller makes
	// the next one at once, without a back-off and without an end.
	manyRejected = 5
	rejectedIn   = time.Minute
)

// rejected finds pods that the scheduler placed and the kubelet refused, one after the
// other. ReplicaSets leave them behind, StatefulSets replace them under the same name:
// both without a back-off. DaemonSets and Jobs wait longer each time.
func rejected(ev *Evidence) Finding {
	switch {
	case ev.ReplicaSet != nil:
		return looping(ev)
	case ev.Spec.Type == runnerapi.TypeStatefulSet, ev.Spec.Type == runnerapi.TypeDaemonSet:
		pod := newestRefused(ev.Pods)
		if pod == nil {
			return Finding{}
		}
		f := Finding{Crashed: true, Diagnosis: refusal(pod)}
		f.Stop, f.Ended = ev.Recreated >= manyRejected, ev.Recreated
		return f
	}
	if pod := newestRefused(ev.Pods); pod != nil && ev.Job != nil && !over(ev.Job) {
		return Finding{Waiting: fmt.Sprintf("another try: node %s refused pod %s: %s", pod.Spec.NodeName, pod.Name, said(pod))}
	}
	return Finding{}
}

// looping finds a ReplicaSet none of whose pods lives, and that has replaced several: that
// all of a large one are refused once is none yet.
func looping(ev *Evidence) Finding {
	var ended []*corev1.Pod
	for _, pod := range ev.Pods {
		if pod.DeletionTimestamp.IsZero() && refusedByNode(pod) {
			ended = append(ended, pod)
		}
	}
	slices.SortStableFunc(ended, func(a, b *corev1.Pod) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	first := int(ptr.Deref(ev.ReplicaSet.Spec.Replicas, 1)) - 1
	if len(ended) < manyRejected+max(first, 0) || ev.ReplicaSet.Status.ReadyReplicas > 0 {
		return Finding{}
	}
	newest := ended[0]
	if newest.CreationTimestamp.Sub(ended[manyRejected-1].CreationTimestamp.Time) > rejectedIn {
		return Finding{}
	}
	return Finding{Stop: true, Ended: len(ended), Crashed: true, Diagnosis: refusal(newest)}
}

// newestRefused returns the newest pod that a node refused, or nil.
func newestRefused(pods []*corev1.Pod) (newest *corev1.Pod) {
	for _, pod := range pods {
		if refusedByNode(pod) && (newest == nil || pod.CreationTimestamp.After(newest.CreationTimestamp.Time)) {
			newest = pod
		}
	}
	return newest
}

func refusal(pod *corev1.Pod) *runnerapi.Diagnosis {
	return &runnerapi.Diagnosis{
		Cause: runnerapi.CauseAdmissionRefused, Object: "pod/" + pod.Name,
		Message: fmt.Sprintf("node %s refuses the pods as soon as they are placed: %s", pod.Spec.NodeName, said(pod)),
		Fix:     rejectedFix(pod.Status.Reason),
	}
}

// Halted returns the diagnosis of a finding to stop, once the agent has stopped the rollout.
func (f Finding) Halted() *runnerapi.Diagnosis {
	d := *f.Diagnosis
	d.Message += fmt.Sprintf("; after %d pods the agent stopped the rollout", f.Ended)
	d.Fix += "; then deploy the App again, or restart it"
	return &d
}

// WantsRecreations reports whether it matters how often a StatefulSet has recreated its pods.
func WantsRecreations(pods []*corev1.Pod) bool { return newestRefused(pods) != nil }

func over(j *batchv1.Job) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool {
		return (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue
	})
}

// refusedByNode reports whether the kubelet ended a pod before it started anything.
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

// said returns the pod status's text about its end.
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
