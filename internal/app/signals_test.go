package app_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// startByEvents runs an Engine that reconciles an App again only when an event is about it. So it has
// what it diagnoses from the signal itself, and not from looking again and again.
func startByEvents(t *testing.T, env *kubetest.Env, namespace string) *app.Engine {
	t.Helper()
	e, _ := startWith(t, limitedTo(env, namespace), (*app.Engine).WithoutRechecks)
	return e
}

// signal says whether an object shows that something is wrong.
type signal func(client.Object) bool

// sightings are when a test's own watches first saw the signal of an App's
// trouble, and its diagnosis.
type sightings struct {
	mu      sync.Mutex
	signals map[string]signal
	causes  map[string]runnerapi.Cause
	signal  map[string]time.Time
	told    map[string]time.Time
}

func newSightings() *sightings {
	return &sightings{
		signals: map[string]signal{}, causes: map[string]runnerapi.Cause{},
		signal: map[string]time.Time{}, told: map[string]time.Time{},
	}
}

// expect is called before the App is deployed.
func (s *sightings) expect(name string, cause runnerapi.Cause, see signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signals[name], s.causes[name] = see, cause
}

// report logs how long after its signal a diagnosis was published. How long that takes is the
// machine's affair too, so that it bounds nothing.
func (s *sightings) report(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the test's watches have caught up", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.signal[name].IsZero() && !s.told[name].IsZero()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	delay := s.told[name].Sub(s.signal[name])
	t.Logf("%s: published %s after its signal", s.causes[name], delay.Round(time.Millisecond))
}

// in watches a namespace with a client of the test's own until it ends.
func (s *sightings) in(t *testing.T, env *kubetest.Env, ns string) {
	t.Helper()
	cl, err := client.NewWithWatch(env.Admin, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &batchv1.JobList{}, &corev1.EventList{}, &app.List{},
	} {
		w, err := cl.Watch(t.Context(), list, client.InNamespace(ns))
		require.NoError(t, err)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ev := range w.ResultChan() {
				s.note(ev)
			}
		}()
		t.Cleanup(func() { w.Stop(); await.Closed(t, done, "the watch's end") })
	}
}

func (s *sightings) note(ev watch.Event) {
	o, ok := ev.Object.(client.Object)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.appOf(o)
	switch a, isApp := o.(*app.App); {
	case name == "":
	case isApp:
		if d := a.Status.Diagnosis; d != nil && d.Cause == s.causes[name] && s.told[name].IsZero() {
			s.told[name] = time.Now()
		}
	case s.signal[name].IsZero() && s.signals[name](o):
		s.signal[name] = time.Now()
	}
}

// appOf is the App that an object belongs to, or that an event is about.
func (s *sightings) appOf(o client.Object) string {
	name := o.GetName()
	if ev, ok := o.(*corev1.Event); ok {
		name = ev.InvolvedObject.Name
	}
	name = strings.TrimPrefix(name, "data-") // the claims of a StatefulSet
	for known := range s.signals {
		if name == known || strings.HasPrefix(name, known+"-") {
			return known
		}
	}
	return ""
}

// containers are an object's container statuses, if it is a pod.
func containers(o client.Object) []corev1.ContainerStatus {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	return append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...)
}

func waits(reasons ...string) signal {
	return func(o client.Object) bool {
		for _, c := range containers(o) {
			for _, reason := range reasons {
				if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
					return true
				}
			}
		}
		return false
	}
}

func either(a, b signal) signal { return func(o client.Object) bool { return a(o) || b(o) } }

// ended is a container that ended for this reason.
func ended(reason string) signal {
	return func(o client.Object) bool {
		for _, c := range containers(o) {
			for _, state := range []corev1.ContainerState{c.State, c.LastTerminationState} {
				if state.Terminated != nil && state.Terminated.Reason == reason {
					return true
				}
			}
		}
		return false
	}
}

// looping is a container that ended for the second time, or is held back.
func looping(o client.Object) bool {
	for _, c := range containers(o) {
		if c.RestartCount >= 2 || c.RestartCount == 1 && c.State.Terminated != nil || waits("CrashLoopBackOff")(o) {
			return true
		}
	}
	return false
}

func unscheduled(o client.Object) bool {
	return podCondition(o, corev1.PodScheduled) == corev1.ConditionFalse
}

// disowned is a pod that its containers' kubelet calls ready and the cluster not.
func disowned(o client.Object) bool {
	return podCondition(o, corev1.PodReady) == corev1.ConditionFalse && podCondition(o, corev1.ContainersReady) == corev1.ConditionTrue
}

func podCondition(o client.Object, kind corev1.PodConditionType) corev1.ConditionStatus {
	if pod, ok := o.(*corev1.Pod); ok {
		for _, c := range pod.Status.Conditions {
			if c.Type == kind {
				return c.Status
			}
		}
	}
	return ""
}

// refusedPods is a ReplicaSet that cannot make its pods.
func refusedPods(o client.Object) bool {
	if rs, ok := o.(*appsv1.ReplicaSet); ok {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

// stalled is a Deployment whose rollout has missed its deadline.
func stalled(o client.Object) bool {
	if d, ok := o.(*appsv1.Deployment); ok {
		for _, c := range d.Status.Conditions {
			if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
				return true
			}
		}
	}
	return false
}

func failedRun(o client.Object) bool {
	if j, ok := o.(*batchv1.Job); ok {
		for _, c := range j.Status.Conditions {
			if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
				return true
			}
		}
	}
	return false
}

// says is an event of one of these reasons that was seen so often.
func says(times int32, reasons ...string) signal {
	return func(o client.Object) bool {
		ev, ok := o.(*corev1.Event)
		if !ok {
			return false
		}
		for _, reason := range reasons {
			if ev.Reason == reason && max(ev.Count, 1) >= times {
				return true
			}
		}
		return false
	}
}
