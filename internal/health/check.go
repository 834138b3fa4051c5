package health

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeclient"
	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxPods bounds what is read of one workload's pods.
const maxPods = 500

// Checker determines the state of workloads that are not Apps. It reads them from the API server
// each time, and caches nothing.
type Checker struct {
	config        *rest.Config
	stabilization diagnose.Stabilization
	now           func() time.Time
	podsAlone     bool

	mu   sync.Mutex
	api  client.Client // made when it is used first
	pods corev1client.PodsGetter

	ports ports
}

// New returns a Checker. It makes no requests yet.
func New(rc *rest.Config, s diagnose.Stabilization) *Checker {
	return &Checker{config: rc, stabilization: s, now: time.Now}
}

// Report is how a workload is.
type Report struct {
	State     runnerapi.ObjectState
	Message   string // what it waits for
	Diagnosis *runnerapi.Diagnosis
	LastLines []string // of the init container that the message names
}

// Check returns how an object is that was just read; false for one that neither runs pods nor
// scales them.
func (c *Checker) Check(ctx context.Context, u *unstructured.Unstructured) (Report, bool, error) {
	if r, is := ofApp(u); is {
		return r, true, nil
	}
	w, err := typed(u)
	if w == nil || err != nil {
		return Report{}, false, err
	}
	api, err := c.client()
	if err != nil {
		return Report{}, true, err
	}
	r, err := c.check(ctx, api, w)
	return r, true, err
}

// typed returns the object as Go has it; nil for a kind that neither runs pods nor scales them.
func typed(u *unstructured.Unstructured) (client.Object, error) {
	var o client.Object
	switch gk := u.GroupVersionKind().GroupKind().String(); gk {
	case "Deployment.apps":
		o = &appsv1.Deployment{}
	case "StatefulSet.apps":
		o = &appsv1.StatefulSet{}
	case "DaemonSet.apps":
		o = &appsv1.DaemonSet{}
	case "ReplicaSet.apps":
		o = &appsv1.ReplicaSet{}
	case "Job.batch":
		o = &batchv1.Job{}
	case "CronJob.batch":
		o = &batchv1.CronJob{}
	case "HorizontalPodAutoscaler.autoscaling":
		o = &autoscalingv2.HorizontalPodAutoscaler{}
	case "Pod":
		o = &corev1.Pod{}
	default:
		return nil, nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	if h, is := o.(*autoscalingv2.HorizontalPodAutoscaler); is && u.GroupVersionKind().Version == "v1" {
		// Version 1 has no field for them.
		_ = json.Unmarshal([]byte(h.Annotations["autoscaling.alpha.kubernetes.io/conditions"]), &h.Status.Conditions)
	}
	return o, nil
}

func (c *Checker) check(ctx context.Context, api client.Client, w client.Object) (Report, error) {
	if d := standing(w); d != nil {
		return Report{State: runnerapi.ObjectFailed, Message: d.Message, Diagnosis: d}, nil
	}
	if !seen(w) { // its pods' reports are about an older spec
		return Report{State: runnerapi.ObjectInProgress, Message: "waits for Kubernetes to take its newest spec"}, nil
	}
	f, ev, err := c.find(ctx, api, w)
	if err != nil {
		return Report{}, err
	}
	if f.Diagnosis != nil {
		d := reworded(f.Diagnosis, w)
		if d.Cause.Retried() && ev.Job != nil && !ended(ev.Job) { // Kubernetes tries it again
			return Report{State: runnerapi.ObjectInProgress, Message: "waits for another try: " + d.Message}, nil
		}
		return Report{State: runnerapi.ObjectFailed, Message: d.Message, Diagnosis: d}, nil
	}
	waits := waitsFor(w, ev.Pods)
	switch {
	case f.Initializing != "": // all the rest waits for it too
		waits = "waits for " + f.Initializing
	case f.Unsettled:
		waits = cmp.Or(waits, "waits for "+f.Waiting)
	case f.Waiting != "" && waits != "": // which is more specific
		waits = "waits for " + f.Waiting
	}
	if waits != "" {
		return Report{State: runnerapi.ObjectInProgress, Message: waits, LastLines: f.LastLines}, nil
	}
	return Report{State: runnerapi.ObjectReady}, nil
}

// find gathers the evidence about a workload, and what it amounts to.
func (c *Checker) find(ctx context.Context, api client.Client, w client.Object) (diagnose.Finding, diagnose.Evidence, error) {
	g := Gatherer{Namespace: w.GetNamespace(), Name: pathOf(w), Objects: api, Live: api, Logs: Logs(c.pods)}
	if c.podsAlone {
		g.Live, g.Logs = blind{api}, nil
	}
	ev := diagnose.Evidence{Spec: runnerapi.AppSpec{Type: typeOf(w)}, Now: c.now(), Stabilization: c.stabilization}
	ev.Autoscaler, _ = w.(*autoscalingv2.HorizontalPodAutoscaler)
	all, err := g.workload(ctx, w)
	if err != nil {
		return diagnose.Finding{}, ev, err
	}
	if err := g.Add(ctx, all, &ev); err != nil {
		return diagnose.Finding{}, ev, err
	}
	if !c.podsAlone {
		ev.Ports, ev.Container = c.ports.of(ctx, &ev, c.now)
	}
	return diagnose.Find(ev), ev, nil
}

// seen reports whether a workload's status speaks of its newest spec.
func seen(w client.Object) bool {
	switch w := w.(type) {
	case *appsv1.Deployment:
		return w.Status.ObservedGeneration >= w.Generation
	case *appsv1.StatefulSet:
		return w.Status.ObservedGeneration >= w.Generation
	case *appsv1.DaemonSet:
		return w.Status.ObservedGeneration >= w.Generation
	case *appsv1.ReplicaSet:
		return w.Status.ObservedGeneration >= w.Generation
	}
	return true
}

func typeOf(w client.Object) runnerapi.AppType {
	switch w := w.(type) {
	case *appsv1.StatefulSet:
		return runnerapi.TypeStatefulSet
	case *appsv1.DaemonSet:
		return runnerapi.TypeDaemonSet
	case *batchv1.Job:
		return runnerapi.TypeJob
	case *batchv1.CronJob:
		return runnerapi.TypeCronJob
	case *corev1.Pod:
		if w.Spec.RestartPolicy != corev1.RestartPolicyAlways {
			return runnerapi.TypeJob
		}
	}
	return runnerapi.TypeDeployment
}

// workload reads what an object has: its pods and runs.
func (g Gatherer) workload(ctx context.Context, o client.Object) (Workload, error) {
	w := Workload{Object: o}
	var selector *metav1.LabelSelector
	switch o := o.(type) {
	case *appsv1.Deployment:
		selector = o.Spec.Selector
	case *appsv1.StatefulSet:
		selector = o.Spec.Selector
	case *appsv1.DaemonSet:
		selector = o.Spec.Selector
	case *appsv1.ReplicaSet:
		selector = o.Spec.Selector
	case *batchv1.Job:
		w.Jobs, selector = []*batchv1.Job{o}, o.Spec.Selector
	case *batchv1.CronJob:
		return g.runsOf(ctx, o, w)
	case *corev1.Pod:
		w.Pods = []*corev1.Pod{o}
		return w, nil
	}
	if selector != nil {
		w.Labels = selector.MatchLabels
	}
	var err error
	w.Pods, err = g.podsOf(ctx, selector)
	return w, err
}

func (g Gatherer) podsOf(ctx context.Context, by *metav1.LabelSelector) ([]*corev1.Pod, error) {
	selector, err := metav1.LabelSelectorAsSelector(by)
	if err != nil || selector.Empty() {
		return nil, nil //nolint:nilerr // the API server would not have taken it
	}
	var list corev1.PodList
	err = g.Objects.List(ctx, &list, client.InNamespace(g.Namespace), client.MatchingLabelsSelector{Selector: selector}, client.Limit(maxPods))
	if err != nil {
		return nil, fmt.Errorf("list the pods of %s: %w", g.Name, err)
	}
	pods := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods, nil
}

// runsOf reads the runs of a CronJob, and the pods of the newest two.
func (g Gatherer) runsOf(ctx context.Context, o *batchv1.CronJob, w Workload) (Workload, error) {
	var list batchv1.JobList
	if err := g.Objects.List(ctx, &list, client.InNamespace(g.Namespace), client.Limit(maxPods)); err != nil {
		return w, fmt.Errorf("list the runs of %s: %w", g.Name, err)
	}
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], o) {
			w.Jobs = append(w.Jobs, &list.Items[i])
		}
	}
	slices.SortFunc(w.Jobs, func(a, b *batchv1.Job) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	for _, j := range w.Jobs[:min(len(w.Jobs), 2)] {
		pods, err := g.podsOf(ctx, j.Spec.Selector)
		if err != nil {
			return w, err
		}
		w.Pods = append(w.Pods, pods...)
	}
	return w, nil
}

// waitsFor returns what a workload's controller has to do yet; empty for nothing.
func waitsFor(o client.Object, pods []*corev1.Pod) string {
	switch o := o.(type) {
	case *appsv1.Deployment:
		s := o.Status
		return rollout(ptr.Deref(o.Spec.Replicas, 1), s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, pods)
	case *appsv1.StatefulSet:
		s, want := o.Status, ptr.Deref(o.Spec.Replicas, 1)
		updated := s.UpdatedReplicas
		if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType || o.Spec.UpdateStrategy.RollingUpdate != nil &&
			ptr.Deref(o.Spec.UpdateStrategy.RollingUpdate.Partition, 0) > 0 {
			updated = want // older pods are meant to stay
		}
		return rollout(want, s.Replicas, updated, s.ReadyReplicas, pods)
	case *appsv1.DaemonSet:
		s, updated := o.Status, o.Status.UpdatedNumberScheduled
		if o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			updated = s.DesiredNumberScheduled
		}
		return rollout(s.DesiredNumberScheduled, s.CurrentNumberScheduled, updated, s.NumberReady, pods)
	case *appsv1.ReplicaSet:
		s := o.Status
		return rollout(ptr.Deref(o.Spec.Replicas, 1), s.Replicas, s.Replicas, s.ReadyReplicas, pods)
	case *batchv1.Job:
		if !Succeeded(o) && !ptr.Deref(o.Spec.Suspend, false) {
			return "waits for its run to end"
		}
	case *corev1.Pod:
		if o.Status.Phase != corev1.PodSucceeded && !diagnose.Ready(o) {
			return rollout(1, 1, 1, 0, []*corev1.Pod{o})
		}
	}
	return ""
}

// rollout returns what a rolling update has to do yet. The pods are those of the newest spec: ready
// counts those of an older one with them.
func rollout(want, have, updated, ready int32, pods []*corev1.Pod) string {
	newest := int32(0)
	for _, pod := range pods {
		if pod.DeletionTimestamp.IsZero() && diagnose.Ready(pod) {
			newest++
		}
	}
	of := "pods"
	if ready >= want && have > want && newest < want {
		ready, of = newest, "pods of the newest spec"
	}
	switch {
	case updated < want:
		return fmt.Sprintf("waits for pods of the newest spec: %d of %d are there", updated, want)
	case ready < want:
		for _, pod := range pods {
			if container, state := diagnose.WaitsFor(pod); container != "" {
				return fmt.Sprintf("waits for %s: %d of %d are ready; container %s of pod %s: %s", of, ready, want, container, pod.Name, state)
			}
		}
		return fmt.Sprintf("waits for %s: %d of %d are ready", of, ready, want)
	case have > want:
		return fmt.Sprintf("waits for %d older pods to stop", have-want)
	}
	return ""
}

// ofApp returns how an App is, by its own status.
func ofApp(u *unstructured.Unstructured) (Report, bool) {
	if u.GroupVersionKind().GroupKind().String() != "App.pipeops.io" {
		return Report{}, false
	}
	var a struct {
		Status runnerapi.AppStatus `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &a) != nil {
		return Report{State: runnerapi.ObjectUnknown, Message: "its status cannot be understood"}, true
	}
	s := a.Status
	switch seen := s.ObservedGeneration >= u.GetGeneration(); {
	case seen && (s.Phase == runnerapi.PhaseHealthy || s.Phase == runnerapi.PhasePaused):
		return Report{State: runnerapi.ObjectReady}, true
	case seen && s.Diagnosis != nil:
		return Report{State: runnerapi.ObjectFailed, Message: s.Diagnosis.Message, Diagnosis: s.Diagnosis}, true
	}
	waits := "waits for " + cmp.Or(s.WaitingFor, "the agent to look at it")
	return Report{State: runnerapi.ObjectInProgress, Message: waits, LastLines: s.LastLines}, true
}

func (c *Checker) client() (client.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.api != nil {
		return c.api, nil
	}
	rc := kubeclient.Config(c.config)
	rc.Timeout = requestTimeout
	scheme, mapper := runtime.NewScheme(), meta.NewDefaultRESTMapper(nil)
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, batchv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	for _, kind := range []string{"Pod", "PodList", "Event", "EventList", "Secret"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	for _, kind := range []string{"Deployment", "StatefulSet", "ReplicaSet", "ControllerRevision"} {
		mapper.Add(appsv1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	mapper.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	api, err := client.New(rc, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("prepare the client that reads workloads: %w", err)
	}
	core, err := corev1client.NewForConfig(rc)
	if err != nil {
		return nil, fmt.Errorf("prepare the client that reads logs: %w", err)
	}
	c.api, c.pods = api, core
	c.ports.reach = podport.NewReach(podport.Forwarder{Config: rc, Core: core.RESTClient()})
	return api, nil
}

// requestTimeout bounds each request to the Kubernetes API.
const requestTimeout = 15 * time.Second
