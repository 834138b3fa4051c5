package app

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
)

// revision is the annotation by which a Deployment names its newest ReplicaSet.
const revision = "deployment.kubernetes.io/revision"

// evidence gathers the signals that speak of the newest spec. The jobs are its
// runs, the newest first.
func (e *Engine) evidence(ctx context.Context, a *App, w client.Object, pods []*corev1.Pod, jobs []*batchv1.Job) (diagnose.Evidence, error) {
	ev := diagnose.Evidence{
		Spec: a.Spec, Now: e.now(),
		Nodes:  map[string]*corev1.Node{},
		Probes: map[types.UID]diagnose.ProbeFailures{}, Mounts: map[types.UID]string{}, Claims: map[types.UID]string{},
	}
	if a.observed() {
		ev.Previous = a.Status.Diagnosis
	}
	var err error
	if ev.Pods, err = e.currentPods(ctx, a, w, pods, jobs, &ev); err != nil {
		return ev, err
	}
	if diagnose.WantsTaints(ev.DaemonSet, ev.Pods) {
		if ev.Tainted, err = e.taintedNodes(ctx); err != nil {
			return ev, err
		}
	}
	for _, pod := range ev.Pods {
		if err := e.lookAtNode(ctx, pod, &ev); err != nil {
			return ev, err
		}
		if diagnose.WantsProbes(pod, ev.Now) {
			if ev.Probes[pod.UID], err = e.probeFailures(ctx, a, pod); err != nil {
				return ev, err
			}
		}
		if diagnose.WantsMounts(pod, ev.Now) {
			if ev.Mounts[pod.UID], err = e.newestEvent(ctx, a, byUID(pod), "FailedMount"); err != nil {
				return ev, err
			}
		}
		if ev.Claims[pod.UID], err = e.unbound(ctx, a, pod); err != nil {
			return ev, err
		}
	}
	return ev, e.missing(ctx, a, w, jobs, &ev)
}

// currentPods are the pods of the newest spec, as each kind of workload tells
// them from older ones; and what else it says goes into the evidence.
func (e *Engine) currentPods(ctx context.Context, a *App, w client.Object, pods []*corev1.Pod, jobs []*batchv1.Job, ev *diagnose.Evidence) ([]*corev1.Pod, error) {
	switch w := w.(type) {
	case *appsv1.Deployment:
		ev.Deployment = w
		rs, err := e.newestReplicaSet(ctx, a, w)
		if err != nil || rs == nil {
			return nil, err
		}
		ev.ReplicaSet = rs
		return only(pods, func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, rs) }), nil
	case *appsv1.StatefulSet:
		return only(pods, func(p *corev1.Pod) bool { return revisionOf(p) == w.Status.UpdateRevision }), nil
	case *appsv1.DaemonSet:
		ev.DaemonSet = w
		generation := w.Annotations[appsv1.DeprecatedTemplateGeneration]
		return only(pods, func(p *corev1.Pod) bool {
			have := p.Labels[extensionsTemplateGeneration]
			return generation == "" || have == "" || have == generation
		}), nil
	case *batchv1.Job, *batchv1.CronJob:
		if len(jobs) == 0 {
			return nil, nil
		}
		ev.Job = jobs[0]
		if last := newestEnded(jobs); last != nil && last != jobs[0] && !succeeded(last) {
			ev.LastFailed = last
		}
		return only(pods, func(p *corev1.Pod) bool {
			return metav1.IsControlledBy(p, ev.Job) || ev.LastFailed != nil && metav1.IsControlledBy(p, ev.LastFailed)
		}), nil
	}
	return nil, nil
}

// extensionsTemplateGeneration is the label by which a DaemonSet's pods name
// the template they were made from.
const extensionsTemplateGeneration = "pod-template-generation"

func only(pods []*corev1.Pod, keep func(*corev1.Pod) bool) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range pods {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// missing asks why there are fewer pods than there should be. A Deployment says
// so in its conditions; the other kinds in events alone, so those are asked for
// while pods are missing.
func (e *Engine) missing(ctx context.Context, a *App, w client.Object, jobs []*batchv1.Job, ev *diagnose.Evidence) error {
	maker, short := w, false
	switch w := w.(type) {
	case *appsv1.StatefulSet, *appsv1.DaemonSet:
		f := figuresOf(w)
		short = f.replicas < f.desired && len(ev.Pods) < int(f.desired)
	case *batchv1.Job, *batchv1.CronJob:
		if len(jobs) > 0 {
			_, at := outcomeOfJob(jobs[0])
			maker, short = jobs[0], at == nil && len(ev.Pods) == 0
		}
	}
	if !short {
		return nil
	}
	message, err := e.newestEvent(ctx, a, byUID(maker), "FailedCreate")
	ev.Refused, ev.RefusedObject = message, kindPath(kindOf(maker), maker.GetName())
	ev.Missing = ev.Now.Sub(maker.GetCreationTimestamp().Time)
	if at := a.Status.LastTransition; at != nil { // they may have been there for long before
		ev.Missing = min(ev.Missing, ev.Now.Sub(*at))
	}
	ev.Missing = max(ev.Missing, time.Millisecond)
	return err
}

// unbound is why a claim that a pod waits for has no volume, as far as somebody
// said so: while a volume is being made nobody does.
func (e *Engine) unbound(ctx context.Context, a *App, pod *corev1.Pod) (string, error) {
	for _, claim := range diagnose.UnboundClaims(pod) {
		at := client.MatchingFields{"involvedObject.kind": "PersistentVolumeClaim", "involvedObject.name": claim}
		message, err := e.newestEvent(ctx, a, at, "ProvisioningFailed", "FailedBinding")
		if message != "" || err != nil {
			return "claim " + claim + ": " + message, err
		}
	}
	return "", nil
}

// newestReplicaSet is the one of the Deployment's newest spec, or nil while the
// cache has not seen it.
func (e *Engine) newestReplicaSet(ctx context.Context, a *App, d *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	var list appsv1.ReplicaSetList
	if err := e.cached.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels(managed.AppLabels(a.Name))); err != nil {
		return nil, fmt.Errorf("list the replica sets of App %s: %w", a.key(), err)
	}
	for i := range list.Items {
		rs := &list.Items[i]
		if metav1.IsControlledBy(rs, d) && d.Annotations[revision] != "" && rs.Annotations[revision] == d.Annotations[revision] {
			return rs, nil
		}
	}
	return nil, nil
}
