package failures

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// Sightings are when a test's own watches first saw the signal of each trouble, and when its
// diagnosis was published.
type Sightings struct {
	mu      sync.Mutex
	signals map[string]Signal
	causes  map[string]runnerapi.Cause
	signal  map[string]time.Time
	told    map[string]time.Time
	healthy map[string]bool
}

// NewSightings expects nothing yet.
func NewSightings() *Sightings {
	return &Sightings{
		signals: map[string]Signal{}, causes: map[string]runnerapi.Cause{},
		signal: map[string]time.Time{}, told: map[string]time.Time{}, healthy: map[string]bool{},
	}
}

// Expect is called before the workload of that name is created.
func (s *Sightings) Expect(name string, cause runnerapi.Cause, see Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.signals[name], s.causes[name] = see, cause
}

// Told records that a problem was reported, for a set or a release, which have no status to watch.
func (s *Sightings) Told(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.told[name].IsZero() {
		s.told[name] = time.Now()
	}
}

// Seen reports whether the signal was seen.
func (s *Sightings) Seen(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.signal[name].IsZero()
}

// CalledHealthy reports whether an App was ever reported as healthy.
func (s *Sightings) CalledHealthy(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.healthy[name]
}

// Delay returns how long after its signal a diagnosis was published, and logs it. One delay also
// depends on the machine, so it has no bound.
func (s *Sightings) Delay(t *testing.T, name string) time.Duration {
	t.Helper()
	await.Until(t, "the test's watches have caught up", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return !s.signal[name].IsZero() && !s.told[name].IsZero()
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	delay := s.told[name].Sub(s.signal[name])
	t.Logf("%s: published %s after its signal", s.causes[name], delay.Round(time.Millisecond))
	return delay
}

// In watches a namespace with a client of the test's own until it ends.
func (s *Sightings) In(t *testing.T, env *kubetest.Env, ns string) {
	t.Helper()
	cl, err := client.NewWithWatch(env.Admin, client.Options{Scheme: env.Client.Scheme()})
	require.NoError(t, err)
	for _, list := range []client.ObjectList{
		&corev1.PodList{}, &appsv1.DeploymentList{}, &appsv1.ReplicaSetList{}, &batchv1.JobList{}, &batchv1.CronJobList{},
		&autoscalingv2.HorizontalPodAutoscalerList{}, &corev1.EventList{}, &v1alpha1.List{},
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

func (s *Sightings) note(ev watch.Event) {
	o, ok := ev.Object.(client.Object)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name := s.workloadOf(o)
	switch a, isApp := o.(*v1alpha1.App); {
	case name == "":
	case isApp:
		s.noteApp(name, a)
	case s.signals[name] != nil && s.signal[name].IsZero() && s.signals[name](o):
		s.signal[name] = time.Now()
	}
}

func (s *Sightings) noteApp(name string, a *v1alpha1.App) {
	if d := a.Status.Diagnosis; d != nil && d.Cause == s.causes[name] && s.told[name].IsZero() {
		s.told[name] = time.Now()
	}
	if a.Status.Phase == runnerapi.PhaseHealthy && s.told[name].IsZero() {
		s.healthy[name] = true
	}
}

// workloadOf returns the workload that an object belongs to, or that an event is about: that with
// the longest name that begins the object's.
func (s *Sightings) workloadOf(o client.Object) (longest string) {
	name := o.GetName()
	if ev, ok := o.(*corev1.Event); ok {
		name = ev.InvolvedObject.Name
	}
	name = strings.TrimPrefix(name, "data-") // the claims of a StatefulSet
	for known := range s.signals {
		if (name == known || strings.HasPrefix(name, known+"-")) && len(known) > len(longest) {
			longest = known
		}
	}
	return longest
}
