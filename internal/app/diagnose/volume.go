package diagnose

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var (
	noClaim     = regexp.MustCompile(`persistentvolumeclaim "([^"]+)" not found`)
	provisioner = regexp.MustCompile(`external provisioner ['"]([^'"]+)['"]`)
	noFileKey   = regexp.MustCompile(`references non-existent (secret|config) key: (\S+)`)
)

const (
	unboundWords = "unbound immediate PersistentVolumeClaims"
	// bindingWords are the scheduler's once it has waited in vain for a volume that is made
	// for a pod's node.
	bindingWords = "binding volumes"
)

// Claim is what the cluster reports about a claim that a pod waits for.
type Claim struct {
	Name string
	// Message is why it has no volume; empty if there is no message.
	Message string
	// Waits reports that the message is not a failure: a provisioner was asked for the volume.
	Waits bool
}

// unbound finds a pod that waits for a volume. That is not a problem yet while the volume may be in
// creation.
func unbound(pod *corev1.Pod, cond corev1.PodCondition, ev *Evidence) Finding {
	if m := noClaim.FindStringSubmatch(cond.Message); m != nil {
		// A claim may have appeared since: the scheduler is silent while it waits for a volume.
		if classOf(m[1], ev) != "" || ev.Claims[pod.UID].Message != "" {
			return unmade(pod, pod.CreationTimestamp.Time, ev)
		}
		return found(&runnerapi.Diagnosis{
			Cause: runnerapi.CauseVolumeNotBound, Object: "pod/" + pod.Name,
			Message: fmt.Sprintf("claim %q, which the App refers to, does not exist in namespace %s", m[1], pod.Namespace),
			Fix:     fmt.Sprintf("create PersistentVolumeClaim %q, or correct volumes.existingClaim; the App then starts by itself", m[1]),
		})
	}
	switch says := func(words string) bool { return strings.Contains(cond.Message, words) }; {
	case says(unboundWords), says(bindingWords):
		return unmade(pod, cond.LastTransitionTime.Time, ev)
	case says("didn't find available persistent volumes"), says("volume node affinity conflict"):
		if ev.Claims[pod.UID].Message != "" {
			return unmade(pod, cond.LastTransitionTime.Time, ev)
		}
		return Finding{
			Diagnosis: noVolume(pod, "claim "+claimsOf(pod)+": "+clip(cond.Message), otherClass),
			Recheck:   later(ev.Now.Sub(cond.LastTransitionTime.Time)),
		}
	}
	return Finding{}
}

// unmade finds a volume that does not exist: at once if the cluster reports that creating it
// failed, and otherwise after the time that a creation may take.
func unmade(pod *corev1.Pod, since time.Time, ev *Evidence) Finding {
	claim, waits, boundBy := ev.Claims[pod.UID], ev.Now.Sub(since), ev.Stabilization.volume()
	failed := claim.Message != "" && !claim.Waits
	if !failed && waits < boundBy {
		return Finding{Recheck: min(later(waits), boundBy-waits)}
	}
	name := claimsOf(pod)
	if claim.Name != "" {
		name = claim.Name
	}
	what, class := "claim "+name, classOf(name, ev)
	if class != "" {
		what += " (" + class + ")"
	}
	switch m := provisioner.FindStringSubmatch(claim.Message); {
	case failed:
		return Finding{Diagnosis: noVolume(pod, what+": "+clip(claim.Message), otherClass), Recheck: later(waits)}
	case m != nil:
		of := ""
		if class != "" {
			of = " of " + class
		}
		d := noVolume(pod, fmt.Sprintf("%s after %s: provisioner %s has not made it", what, boundBy, m[1]),
			fmt.Sprintf("see that provisioner %s%s runs (kubectl get storageclass; kubectl get pods -A), or name another class in volumes.claim.storageClass", m[1], of))
		return Finding{Diagnosis: d, Recheck: later(waits)}
	}
	return Finding{Diagnosis: noVolume(pod, fmt.Sprintf("%s after %s", what, boundBy), otherClass), Recheck: later(waits)}
}

const otherClass = "name a storage class of the cluster in volumes.claim.storageClass that can make such a volume (kubectl get storageclass), or make a PersistentVolume that fits"

func noVolume(pod *corev1.Pod, what, fix string) *runnerapi.Diagnosis {
	return &runnerapi.Diagnosis{
		Cause: runnerapi.CauseVolumeNotBound, Object: "pod/" + pod.Name, Message: "no volume is there for " + what, Fix: fix,
	}
}

// classOf names the storage class of a claim that the workload has made for its pods.
func classOf(claim string, ev *Evidence) string {
	class := func(volume, class string) string {
		switch {
		case !strings.HasPrefix(claim, volume+"-"):
			return ""
		case class == "":
			return "the default storage class"
		}
		return "storage class " + class
	}
	if ev.StatefulSet != nil {
		for _, c := range ev.StatefulSet.Spec.VolumeClaimTemplates {
			if found := class(c.Name, ptr.Deref(c.Spec.StorageClassName, "")); found != "" {
				return found
			}
		}
	}
	return ""
}

// UnboundClaims returns the claims of a pod that has to wait for one of them. Events about them
// count from since: while the scheduler has not reported anything about a new pod, or misses a
// claim, an older event may be about a claim that has its volume by now, or that was deleted.
func UnboundClaims(pod *corev1.Pod) (claims []string, since time.Time) {
	if pod.Spec.NodeName == "" && !slices.ContainsFunc(pod.Status.Conditions, isScheduled) {
		return claimNames(pod), pod.CreationTimestamp.Time
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case !isScheduled(c) || c.Status != corev1.ConditionFalse:
		case strings.Contains(c.Message, unboundWords), strings.Contains(c.Message, bindingWords):
			return claimNames(pod), time.Time{}
		case noClaim.MatchString(c.Message):
			return claimNames(pod), pod.CreationTimestamp.Time
		}
	}
	return nil, time.Time{}
}

func isScheduled(c corev1.PodCondition) bool { return c.Type == corev1.PodScheduled }

func claimsOf(pod *corev1.Pod) string { return clip(strings.Join(claimNames(pod), ", ")) }

func claimNames(pod *corev1.Pod) []string {
	var names []string
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// mount finds a volume that the kubelet cannot mount, because a file's Secret or ConfigMap, or its
// key, is missing. Only an event reports that, not the pod.
func mount(c container, ev *Evidence) Finding {
	since, waits := preparing(c.pod)
	if !waits {
		return Finding{}
	}
	waited, patience := ev.Now.Sub(since), ev.Stabilization.volume()
	again := later(waited)
	message := ev.Mounts[c.pod.UID]
	switch {
	case message == "":
		return Finding{Recheck: again}
	case passes(message) && waited < patience:
		return Finding{Recheck: min(again, patience-waited)}
	}
	if m := noFileKey.FindStringSubmatch(message); m != nil {
		kind, name := "secret", c.source(m[2], true)
		if m[1] == "config" {
			kind, name = "configmap", c.source(m[2], false)
		}
		return Finding{Diagnosis: c.noKey(m[2], kind, name), Recheck: again}
	}
	if source, is := missing(message); is {
		f := c.noSource(source, ev)
		f.Recheck = again
		return f
	}
	return Finding{Recheck: again, Diagnosis: c.diagnosis(runnerapi.CauseVolumeNotBound,
		"a volume cannot be mounted: "+clip(message), "make the volume usable, or correct volumes; the pod's events say more (kubectl describe pod)")}
}

// source returns the Secret or ConfigMap that a key is wanted of.
func (c container) source(key string, secret bool) string {
	for _, v := range c.pod.Spec.Volumes {
		var name string
		var items []corev1.KeyToPath
		switch {
		case secret && v.Secret != nil:
			name, items = v.Secret.SecretName, v.Secret.Items
		case !secret && v.ConfigMap != nil:
			name, items = v.ConfigMap.Name, v.ConfigMap.Items
		}
		for _, item := range items {
			if item.Key == key {
				return name
			}
		}
	}
	return ""
}

// preparing reports whether a pod is on a node that has created none of its containers, and since
// when.
func preparing(pod *corev1.Pod) (since time.Time, waits bool) {
	if !alive(pod) {
		return time.Time{}, false
	}
	for _, s := range append(append([]corev1.ContainerStatus{}, pod.Status.InitContainerStatuses...), pod.Status.ContainerStatuses...) {
		if w := s.State.Waiting; w == nil || w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return time.Time{}, false
		}
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionTrue {
			return c.LastTransitionTime.Time, true
		}
	}
	return time.Time{}, false
}

// WantsPreparation reports whether a diagnosis depends on the events about a pod's volumes and its
// sandbox.
func WantsPreparation(pod *corev1.Pod, now time.Time) bool {
	since, waits := preparing(pod)
	return waits && now.Sub(since) >= time.Second
}
