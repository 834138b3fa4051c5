package app_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/failures"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// shown are the failures of the table that the package's own tests run: each kind of signal once.
// All of them befall an App, a set and a release in test/failures.
var shown = []string{
	"no-image", "no-secret", "no-file", "no-command", "crashing", "hungry", "too-big", "no-class", "unstarted",
	"never-done", "failing-job", "late-job", "sidecar-crashing", "sidecar-no-image",
}

// shownByTime are those that no signal alone shows: a readiness probe has to fail for as long as
// its spec allows.
var shownByTime = []string{"unready"}

// TestDiagnosis_RealFailures breaks Apps in every way that has its own signal, all at once, on a
// real node. Each is diagnosed right after its signal.
func TestDiagnosis_RealFailures(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	images, seen := failures.LoadImages(t, env), failures.NewSightings()
	byEvents, byTime := ownNamespace(t, env), ownNamespace(t, env)
	timed, _ := startWith(t, limitedTo(env, byTime))
	for _, part := range []struct {
		ns    string
		e     *app.Engine
		names []string
	}{{byEvents, startByEvents(t, env, byEvents), shown}, {byTime, timed, shownByTime}} {
		seen.In(t, env, part.ns)
		cases := failures.Named(t, images, part.names...)
		for _, f := range cases {
			seen.Expect(f.Name, f.Cause, f.Signal)
			deploy(t, part.e, key(part.ns, f.Name), f.Spec)
		}
		for _, f := range cases {
			t.Run(f.Name, func(t *testing.T) {
				checkTrouble(t, troubled(t, part.e, key(part.ns, f.Name), f), f)
				seen.Delay(t, f.Name)
			})
		}
	}
}

// startByEvents runs an Engine that reconciles an App again only when an event is about it. So it
// has what it diagnoses from the signal itself, and not from looking again and again.
func startByEvents(t *testing.T, env *kubetest.Env, namespace string) *app.Engine {
	t.Helper()
	e, _ := startWith(t, limitedTo(env, namespace), (*app.Engine).WithoutRechecks)
	return e
}

// troubled is the App once its status has the diagnosis. It may have done well first, and
// on a busy machine, an event may arrive after the change that it reports.
func troubled(t *testing.T, e *app.Engine, k runnerapi.Key, f failures.Failure) runnerapi.App {
	t.Helper()
	var a runnerapi.App
	met := polled(podPatience, func() bool {
		var err error
		a, err = e.Get(t.Context(), k)
		require.NoError(t, err)
		return f.Matches(a.Status.Diagnosis)
	})
	assert.True(t, met, "no %s with %q within %s: %+v", f.Cause, f.Message, podPatience, a.Status)
	return a
}

func checkTrouble(t *testing.T, a runnerapi.App, f failures.Failure) {
	t.Helper()
	f.Check(t, a.Status.Diagnosis)
	if !f.Lives {
		assert.Equal(t, runnerapi.PhaseFailed, a.Status.Phase)
	}
}

// history is every event of an App that a Runner which follows it received.
type history struct {
	mu     sync.Mutex
	events []runnerapi.AppEvent
}

func follow(t *testing.T, e *app.Engine, k runnerapi.Key) *history {
	t.Helper()
	h := &history{}
	await.Background(t, "the events", func(ctx context.Context) error {
		return e.Events(ctx, k, runnerapi.EventOptions{Follow: true}, h.hear)
	})
	return h
}

func (h *history) hear(ev runnerapi.AppEvent) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, ev)
	return nil
}

// first is the first event of this kind, or nil.
func (h *history) first(is func(runnerapi.AppStatus) bool) *runnerapi.AppEvent {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range h.events {
		if is(h.events[i].Status) {
			return &h.events[i]
		}
	}
	return nil
}

func healthy(s runnerapi.AppStatus) bool { return s.Phase == runnerapi.PhaseHealthy }

// TestProbe_SlowStartIsNoFailure is of an App that takes its time within its probes'
// limits, though the kubelet complains of each try.
func TestProbe_SlowStartIsNoFailure(t *testing.T) {
	t.Parallel()
	env, e, k := onNodes(t, "slow")
	complaints := failures.NewSightings()
	complaints.Expect(k.Name, "", failures.Says(3, "Unhealthy"))
	complaints.In(t, env, k.Namespace)
	deploy(t, e, k, runnerapi.AppSpec{Image: helloImage(t, env), Args: []string{"-start-delay=6s"}, Probes: ready(8080)})
	heard := follow(t, e, k)
	within(t, podPatience, "it is healthy", func() bool { return heard.first(healthy) != nil })
	assert.True(t, complaints.Seen(k.Name), "the probe failed meanwhile")
	assert.Nil(t, heard.first(func(s runnerapi.AppStatus) bool { return s.Diagnosis != nil || s.Phase == runnerapi.PhaseFailed }))
	assert.EqualValues(t, 1, heard.first(healthy).Status.ReadyReplicas)
}
