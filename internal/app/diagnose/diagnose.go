// Package diagnose derives what is wrong with an App, and the fix, from what Kubernetes reports
// about the App's Deployment, ReplicaSet and pods. It is a pure function of those signals: it reads
// no cluster, stores nothing, and never waits. Each family of causes has a file.
package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Evidence is what is known about the newest spec of an App.
type Evidence struct {
	Spec        runnerapi.AppSpec
	Deployment  *appsv1.Deployment
	ReplicaSet  *appsv1.ReplicaSet // the newest; nil while it is not known
	DaemonSet   *appsv1.DaemonSet
	StatefulSet *appsv1.StatefulSet
	Job         *batchv1.Job // the newest run of a Job or CronJob
	LastFailed  *batchv1.Job // the previous run, if it failed and the newest continues
	CronJob     *batchv1.CronJob
	Cron        CronEvent // if WantsCronEvents returned true
	Autoscaler  *autoscalingv2.HorizontalPodAutoscaler
	Pods        []*corev1.Pod // of the newest spec
	// Nodes are the nodes of the pods for which WantsNode returned true; nil is a node that is
	// gone.
	Nodes map[string]*corev1.Node
	// Init is the output of the init containers for which WantsInitLog returned true.
	Init map[types.UID]InitLog
	// Tainted are nodes of the cluster, if WantsTaints returned true.
	Tainted []*corev1.Node

	Probes map[types.UID]ProbeFailures
	Mounts map[types.UID]string // why a pod's volumes are not mounted
	// Sandboxes are why the node cannot create a pod's sandbox, where it said that last.
	Sandboxes map[types.UID]string
	Claims    map[types.UID]Claim // of a pod that waits for a volume
	// There are those of MissingSources that exist by now. Makers are what should make the Secrets
	// among the others, by the Secret's name.
	There  map[Source]bool
	Makers map[string]Maker

	// Ports are what tries of the declared ports of Container got, of pods that were tried.
	Ports     map[types.UID]PortTry
	Container string

	// Refused is why a workload that reports that only in events cannot create its pods, and
	// RefusedObject is that workload. Missing is for how long pods may be missing.
	Refused, RefusedObject string
	Missing                time.Duration
	// Bare reports that the only pod has no controller.
	Bare bool
	// Recreated is how many pods a StatefulSet made again one right after the other.
	Recreated int

	Previous *runnerapi.Diagnosis // what was found the last time for the same spec
	// Proven reports that this spec, with this restart, was healthy and has not crashed since.
	Proven        bool
	Stabilization Stabilization
	Now           time.Time
}

// Finding is the conclusion from the signals.
type Finding struct {
	Diagnosis *runnerapi.Diagnosis
	// Unsettled reports that it is too early to call the App healthy, although no problem is known.
	Unsettled bool
	// Waiting is what has to happen before the App is settled.
	Waiting string
	// Initializing is the init container that takes its time, and the last line it wrote. It is
	// reported before anything that follows from it. LastLines are the last lines it wrote.
	Initializing string
	LastLines    []string
	// Crashed reports that a container of the newest spec ended and has not run for long enough
	// since.
	Crashed bool
	// Flaps reports that such a container ran for a while each time. Brief counts the pods that are
	// ready now although their container ends right after its start.
	Flaps bool
	Brief int32
	// Stop reports that the workload creates pods without end, and Ended how many of them failed.
	Stop  bool
	Ended int
	// Recheck is when time alone can change the finding; 0 for never.
	Recheck time.Duration
}

// family looks at one container of a pod for one kind of trouble.
type family func(container, *Evidence) Finding

// The order is that in which a pod comes to life, so the cause that stands in
// the way of all others is found first.
var families = []family{mount, sandbox, image, config, command, probeKill, memory, crash, probe}

// Find returns what is wrong, or a finding without a diagnosis.
func Find(ev Evidence) Finding {
	if d := admission(&ev); d != nil {
		return Finding{Diagnosis: d}
	}
	slices.SortFunc(ev.Pods, func(a, b *corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	refused := rejected(&ev)
	if refused.Diagnosis != nil {
		return refused
	}
	gone := lost(&ev)
	if gone.Diagnosis != nil {
		return gone
	}
	waiting := schedule(&ev)
	if waiting.Diagnosis != nil {
		return waiting
	}
	found := containers(&ev)
	found.add(refused)
	found.add(waiting)
	found.add(gone)
	found.add(initializing(&ev))
	found.add(listening(&ev))
	found.add(stay(&ev))
	if d := run(&ev); d != nil && found.Diagnosis == nil {
		found.Diagnosis = d
	}
	found.add(due(&ev))
	if found.Diagnosis == nil {
		found.Diagnosis = bare(&ev)
	}
	if found.Diagnosis == nil {
		found.Diagnosis = evicted(&ev)
	}
	if found.Diagnosis == nil {
		found.Diagnosis = deadline(&ev)
		found.Recheck = Sooner(found.Recheck, deadlineIn(&ev))
	}
	if found.Diagnosis == nil {
		found.add(autoscaling(&ev))
	}
	if found.Diagnosis == nil && ev.Missing > 0 {
		found.Recheck = Sooner(found.Recheck, later(ev.Missing))
	}
	return found
}

func containers(ev *Evidence) Finding {
	var all Finding
	for _, look := range families {
		for _, pod := range ev.Pods {
			if !alive(pod) {
				continue
			}
			for _, c := range containersOf(pod) {
				all.add(look(c, ev))
			}
		}
	}
	for _, pod := range ev.Pods {
		if alive(pod) {
			all.noteEnds(pod, ev)
		}
	}
	return all
}

// add puts what another look found to what was found before it, which wins.
func (f *Finding) add(g Finding) {
	f.Unsettled = f.Unsettled || g.Unsettled
	f.Recheck = Sooner(f.Recheck, g.Recheck)
	f.Waiting = cmp.Or(f.Waiting, g.Waiting)
	if f.Initializing == "" {
		f.Initializing, f.LastLines = g.Initializing, g.LastLines
	}
	if f.Diagnosis == nil {
		f.Diagnosis = g.Diagnosis
	}
}

// alive leaves out pods whose end is already decided.
func alive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp.IsZero() && pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
}

// later returns when to look again at what no event of a watched object reports: soon at first, and
// then at growing intervals.
func later(since time.Duration) time.Duration {
	return min(max(since/2, time.Second), 30*time.Second)
}

// Sooner returns the earlier of two rechecks.
func Sooner(a, b time.Duration) time.Duration {
	switch {
	case a == 0:
		return b
	case b == 0 || a < b:
		return a
	}
	return b
}

// container is one container of a pod with its status.
type container struct {
	pod    *corev1.Pod
	spec   corev1.Container
	status corev1.ContainerStatus
}

func containersOf(pod *corev1.Pod) []container {
	specs := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	all := make([]container, 0, len(statuses))
	for _, s := range statuses {
		c := container{pod: pod, status: s}
		for _, spec := range specs {
			if spec.Name == s.Name {
				c.spec = spec
			}
		}
		if !done(pod, s) {
			all = append(all, c)
		}
	}
	return all
}

// done reports whether a container that is meant to end has ended well: nothing is wrong with it
// any more.
func done(pod *corev1.Pod, s corev1.ContainerStatus) bool {
	if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 {
		return false
	}
	initial := slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == s.Name })
	return initial || pod.Spec.RestartPolicy == corev1.RestartPolicyNever
}

// waiting returns the reason and message of a container that does not run.
func (c container) waiting() (reason, message string) {
	if w := c.status.State.Waiting; w != nil {
		return w.Reason, w.Message
	}
	return "", ""
}

// lastEnd returns how the newest finished run of the container ended, or nil.
func (c container) lastEnd() *corev1.ContainerStateTerminated {
	if t := c.status.State.Terminated; t != nil {
		return t
	}
	return c.status.LastTerminationState.Terminated
}

// diagnosis makes one about this container.
func (c container) diagnosis(cause runnerapi.Cause, message, fix string) *runnerapi.Diagnosis {
	return &runnerapi.Diagnosis{
		Cause: cause, Message: message, Fix: fix,
		Object: "pod/" + c.pod.Name, Container: c.status.Name,
	}
}

// what names the container in a message: by its name where the pod has several.
func (c container) what() string {
	for _, spec := range c.pod.Spec.InitContainers {
		if spec.Name != c.status.Name {
			continue
		}
		if spec.RestartPolicy != nil && *spec.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return "sidecar " + spec.Name
		}
		return "init container " + spec.Name
	}
	if len(c.pod.Spec.Containers) > 1 {
		return "container " + c.status.Name
	}
	return "the container"
}

// events returns the fix of what only a person can make sense of.
func (c container) events() string {
	return fmt.Sprintf("correct in the App's spec what the message names, or look at the pod's events (kubectl -n %s describe pod %s)",
		c.pod.Namespace, c.pod.Name)
}

func found(d *runnerapi.Diagnosis) Finding { return Finding{Diagnosis: d} }
