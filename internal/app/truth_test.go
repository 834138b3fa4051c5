package app_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/failures"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// told is all that was said of an App, as a Runner that follows it hears it.
type told struct {
	mu     sync.Mutex
	events []runnerapi.AppEvent
}

func follow(t *testing.T, e *app.Engine, k runnerapi.Key) *told {
	t.Helper()
	h := &told{}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Events(ctx, k, runnerapi.EventOptions{Follow: true}, h.hear) }()
	t.Cleanup(func() { cancel(); assert.NoError(t, await.Receive(t, done, "the end of the events")) })
	return h
}

func (h *told) hear(ev runnerapi.AppEvent) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, ev)
	return nil
}

// first is the first event of this kind, or nil.
func (h *told) first(is func(runnerapi.AppStatus) bool) *runnerapi.AppEvent {
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

func diagnosed(cause runnerapi.Cause) func(runnerapi.AppStatus) bool {
	return func(s runnerapi.AppStatus) bool { return s.Diagnosis != nil && s.Diagnosis.Cause == cause }
}

// TestProbe_SlowStartIsNoFailure is of an App that takes its time within its probes'
// limits, though the kubelet complains of each try.
func TestProbe_SlowStartIsNoFailure(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "slow")
	complaints := failures.NewSightings()
	complaints.Expect(k.Name, "", failures.Says(3, "Unhealthy"))
	complaints.In(t, env, ns)
	deploy(t, e, k, runnerapi.AppSpec{Image: helloImage(t, env), Args: []string{"-start-delay=6s"}, Probes: ready(8080)})
	heard := follow(t, e, k)
	within(t, podPatience, "it is healthy", func() bool { return heard.first(healthy) != nil })
	assert.True(t, complaints.Seen(k.Name), "the probe failed meanwhile")
	assert.Nil(t, heard.first(func(s runnerapi.AppStatus) bool { return s.Diagnosis != nil || s.Phase == runnerapi.PhaseFailed }))
	assert.EqualValues(t, 1, heard.first(healthy).Status.ReadyReplicas)
}

// TestHealthy_NeverWhileCrashing has the stabilization that agents have by default.
func TestHealthy_NeverWhileCrashing(t *testing.T) {
	suite.Release(t, "further failures, with the times that agents have by default")
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	config := limitedTo(env, ns)
	config.Stabilization = nil
	e, _ := startWith(t, config)
	heard := map[string]*told{}
	for name, after := range map[string]string{"three": "3s", "six": "6s", "twelve": "12s"} {
		deploy(t, e, key(ns, name), runnerapi.AppSpec{Image: helloImage(t, env), Args: []string{"-crash-after=" + after}})
		heard[name] = follow(t, e, key(ns, name))
	}
	for name, h := range heard {
		a := troubled(t, e, key(ns, name), failures.Failure{Cause: runnerapi.CauseCrashLoop, Message: "restarts in"})
		assert.Nil(t, h.first(healthy), name)
		assert.NotEmpty(t, a.Status.Diagnosis.LastLines)
		assert.NotNil(t, h.first(func(s runnerapi.AppStatus) bool { return strings.Contains(s.WaitingFor, "stay ready for 30s") }), name)
	}
}

func restarts(t *testing.T, env *kubetest.Env, ns string) (n int32) {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(ns)))
	for _, pod := range pods.Items {
		for _, c := range pod.Status.ContainerStatuses {
			n += c.RestartCount
		}
	}
	return n
}
