// Package workloadhealth determines the state of a workload of any kind: it gathers what the
// cluster reports about its pods, and lets package diagnose interpret it. Apps, sets of manifests
// and Helm releases use it. It changes one thing in the cluster: it stops workloads that create
// pods without end (Stopper).
package workloadhealth

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
)

// Gatherer gathers the evidence about one workload.
type Gatherer struct {
	Namespace string
	Name      string        // of what the workload belongs to, for errors
	Objects   client.Reader // pods, replica sets and jobs: may be a cache
	Live      client.Reader // events and nodes
	Logs      ReadLog       // may be nil
	// Listened is called with the events that the evidence depends on, and the version of the list
	// up to which they were read; without reasons with all. It may be nil.
	Listened func(of fields.Set, version string, reasons []string)
}

// Workload is the workload about which the evidence is gathered.
type Workload struct {
	Object client.Object     // as its controller sees it
	Pods   []*corev1.Pod     // all that it has
	Jobs   []*batchv1.Job    // its runs of the newest spec, the newest first
	Labels map[string]string // of its replica sets
	Since  *time.Time        // when it changed last, if that is known
}

// Add gathers the signals about the newest spec.
func (g Gatherer) Add(ctx context.Context, w Workload, ev *diagnose.Evidence) error {
	ev.Nodes, ev.Init = map[string]*corev1.Node{}, map[types.UID]diagnose.InitLog{}
	ev.Sandboxes = map[types.UID]string{}
	ev.Probes, ev.Mounts, ev.Claims = map[types.UID]diagnose.ProbeFailures{}, map[types.UID]string{}, map[types.UID]diagnose.Claim{}
	var err error
	if ev.Pods, err = g.currentPods(ctx, w, ev); err != nil {
		return err
	}
	g.lastWords(ctx, ev)
	if diagnose.WantsTaints(ev.DaemonSet, ev.Pods) {
		if ev.Tainted, err = g.someNodes(ctx); err != nil {
			return err
		}
	}
	for _, pod := range ev.Pods {
		if err := g.lookAtNode(ctx, pod, ev); err != nil {
			return err
		}
		if diagnose.WantsProbes(pod, ev.Now) {
			if ev.Probes[pod.UID], err = g.probeFailures(ctx, pod); err != nil {
				return err
			}
		}
		if err := g.preparation(ctx, pod, ev); err != nil {
			return err
		}
		if name := diagnose.WantsInitLog(pod, ev.Now); name != "" && g.Logs != nil {
			lines, err := g.Logs(ctx, pod, name, false)
			if err != nil { // it may have ended meanwhile
				lines = ""
			}
			ev.Init[pod.UID] = diagnose.InitLog{Container: name, Lines: lines}
		}
		if ev.Claims[pod.UID], err = g.unbound(ctx, pod); err != nil {
			return err
		}
	}
	if err := g.missingSources(ctx, ev); err != nil {
		return err
	}
	if err := g.cron(ctx, ev); err != nil {
		return err
	}
	return g.missing(ctx, w, ev)
}

// preparation asks what keeps a pod's containers from being created, by what the kubelet said last.
func (g Gatherer) preparation(ctx context.Context, pod *corev1.Pod, ev *diagnose.Evidence) error {
	if !diagnose.WantsPreparation(pod, ev.Now) {
		return nil
	}
	const mount, sandbox = "FailedMount", "FailedCreatePodSandBox"
	said, err := g.newestEvents(ctx, byUID(pod), mount, sandbox)
	if said[sandbox].at.After(said[mount].at) {
		ev.Sandboxes[pod.UID] = said[sandbox].message
	} else {
		ev.Mounts[pod.UID] = said[mount].message
	}
	return err
}

// cron asks why a run of a CronJob that is due was not started.
func (g Gatherer) cron(ctx context.Context, ev *diagnose.Evidence) error {
	if ev.CronJob == nil || !diagnose.WantsCronEvents(ev.CronJob, ev.Now) {
		return nil
	}
	said, err := g.newestEvents(ctx, byUID(ev.CronJob), diagnose.CronReasons()...)
	var newest saying
	for reason, s := range said {
		if newest.message == "" || s.at.After(newest.at) {
			newest, ev.Cron = s, diagnose.CronEvent{Reason: reason, Message: s.message}
		}
	}
	return err
}

// currentPods returns the pods of the newest spec, as each kind of workload distinguishes them from
// older ones. It adds the kind's other reports to the evidence.
func (g Gatherer) currentPods(ctx context.Context, all Workload, ev *diagnose.Evidence) ([]*corev1.Pod, error) {
	pods, jobs := all.Pods, all.Jobs
	switch w := all.Object.(type) {
	case *appsv1.Deployment:
		ev.Deployment = w
		rs, err := g.newestReplicaSet(ctx, all.Labels, w)
		if err != nil || rs == nil {
			return nil, err
		}
		ev.ReplicaSet = rs
		return only(pods, func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, rs) }), nil
	case *appsv1.ReplicaSet:
		ev.ReplicaSet = w
		return only(pods, func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, w) }), nil
	case *corev1.Pod:
		ev.Bare = true
		return pods, nil
	case *appsv1.StatefulSet:
		ev.StatefulSet = w
		return only(pods, func(p *corev1.Pod) bool {
			return p.Labels[appsv1.ControllerRevisionHashLabelKey] == w.Status.UpdateRevision
		}), nil
	case *appsv1.DaemonSet:
		ev.DaemonSet = w
		generation := w.Annotations[appsv1.DeprecatedTemplateGeneration]
		return only(pods, func(p *corev1.Pod) bool {
			have := p.Labels[extensionsTemplateGeneration]
			return generation == "" || have == "" || have == generation
		}), nil
	case *batchv1.Job, *batchv1.CronJob:
		ev.CronJob, _ = w.(*batchv1.CronJob)
		if len(jobs) == 0 {
			return nil, nil
		}
		ev.Job = jobs[0]
		if last := newestEnded(jobs); last != nil && last != jobs[0] && !Succeeded(last) {
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

// missing determines why there are fewer pods than there should be. A Deployment reports that in
// its conditions. The other kinds report it only in events, which are read while pods are missing.
func (g Gatherer) missing(ctx context.Context, all Workload, ev *diagnose.Evidence) error {
	maker, short, jobs := all.Object, false, all.Jobs
	switch w := maker.(type) {
	case *appsv1.StatefulSet:
		if diagnose.WantsRecreations(ev.Pods) {
			var err error
			if ev.Recreated, err = g.recreated(ctx, w, ev.Now); err != nil {
				return err
			}
		}
		want := ptr.Deref(w.Spec.Replicas, 1)
		short = w.Status.Replicas < want && len(ev.Pods) < int(want)
	case *appsv1.DaemonSet:
		want := w.Status.DesiredNumberScheduled
		short = w.Status.CurrentNumberScheduled < want && len(ev.Pods) < int(want)
	case *batchv1.Job, *batchv1.CronJob:
		if len(jobs) > 0 {
			maker, short = jobs[0], !ended(jobs[0]) && len(ev.Pods) == 0
		}
	}
	if !short {
		return nil
	}
	message, err := g.newestEvent(ctx, byUID(maker), "FailedCreate")
	ev.Refused, ev.RefusedObject = message, pathOf(maker)
	ev.Missing = ev.Now.Sub(maker.GetCreationTimestamp().Time)
	if at := all.Since; at != nil { // they may have been there for long before
		ev.Missing = min(ev.Missing, ev.Now.Sub(*at))
	}
	ev.Missing = max(ev.Missing, time.Millisecond)
	return err
}

// unbound returns what the cluster reports about a claim that a pod waits for. A failure is more
// important than a request to a provisioner, which is reported again and again.
func (g Gatherer) unbound(ctx context.Context, pod *corev1.Pod) (diagnose.Claim, error) {
	claims, since := diagnose.UnboundClaims(pod)
	for _, claim := range claims {
		at := client.MatchingFields{"involvedObject.kind": "PersistentVolumeClaim", "involvedObject.name": claim}
		said, err := g.newestEvents(ctx, at, "ProvisioningFailed", "FailedBinding", "ExternalProvisioning")
		if err != nil {
			return diagnose.Claim{}, err
		}
		for _, reason := range []string{"ProvisioningFailed", "FailedBinding", "ExternalProvisioning"} {
			if said := said[reason]; said.message != "" && !said.at.Before(since) {
				return diagnose.Claim{Name: claim, Message: said.message, Waits: reason == "ExternalProvisioning"}, nil
			}
		}
	}
	return diagnose.Claim{}, nil
}

// newestReplicaSet returns the one of the Deployment's newest spec, or nil while the cache has not
// seen it.
func (g Gatherer) newestReplicaSet(ctx context.Context, labels map[string]string, d *appsv1.Deployment) (*appsv1.ReplicaSet, error) {
	var list appsv1.ReplicaSetList
	if err := g.Objects.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingLabels(labels)); err != nil {
		return nil, fmt.Errorf("list the replica sets of %s: %w", g.Name, err)
	}
	for i := range list.Items {
		rs := &list.Items[i]
		if metav1.IsControlledBy(rs, d) && d.Annotations[objectmeta.DeploymentRevision] != "" && rs.Annotations[objectmeta.DeploymentRevision] == d.Annotations[objectmeta.DeploymentRevision] {
			return rs, nil
		}
	}
	return nil, nil
}

// Succeeded reports whether a run came to a good end.
func Succeeded(j *batchv1.Job) bool { return jobIs(j, batchv1.JobComplete) }

func ended(j *batchv1.Job) bool { return jobIs(j, batchv1.JobComplete) || jobIs(j, batchv1.JobFailed) }

func jobIs(j *batchv1.Job, kind batchv1.JobConditionType) bool {
	return slices.ContainsFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == kind && c.Status == corev1.ConditionTrue })
}

// newestEnded returns the newest run that came to its end, or nil.
func newestEnded(jobs []*batchv1.Job) *batchv1.Job {
	for _, j := range jobs {
		if ended(j) {
			return j
		}
	}
	return nil
}

// pathOf names a workload as kind/name.
func pathOf(o client.Object) string {
	switch o.(type) {
	case *appsv1.StatefulSet:
		return "statefulset/" + o.GetName()
	case *appsv1.DaemonSet:
		return "daemonset/" + o.GetName()
	case *appsv1.ReplicaSet:
		return "replicaset/" + o.GetName()
	case *corev1.Pod:
		return "pod/" + o.GetName()
	case *batchv1.CronJob:
		return "cronjob/" + o.GetName()
	case *batchv1.Job:
		return "job/" + o.GetName()
	case *autoscalingv2.HorizontalPodAutoscaler:
		return "horizontalpodautoscaler/" + o.GetName()
	}
	return "deployment/" + o.GetName()
}
