package app_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/failures"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// shown are the failures of the table that the package's own tests run: each kind of signal once.
// All of them befall an App, a set and a release in test/failures.
var shown = []string{
	"no-image", "no-secret", "no-file", "no-command", "crashing", "hungry", "too-big", "no-class", "unstarted",
	"never-done", "failing-job", "late-job",
}

// shownByTime are those that no signal alone shows: a readiness probe has to fail for as long as
// its spec allows.
var shownByTime = []string{"unready"}

// TestDiagnosis_RealFailures breaks Apps in every way that has a signal of its own, all at once, on
// a real node. Each is diagnosed right after its signal.
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

// troubled is the App once it says what is wrong. It may have done well first, and
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

// nodePatience is how long Kubernetes takes to notice that a kubelet is silent
// (20 s in the test cluster), and more; heartbeat how often one that is not says so.
const (
	nodePatience = 5 * time.Minute
	heartbeat    = 5 * time.Second
)

// simulated is a node of which the test is the kubelet: it says that the node is
// ready, and that its pods run, whenever it is told to.
type simulated struct {
	env  *kubetest.Env
	name string
	beat time.Time // when it last said that it is ready
}

// simulate adds a node so large that what is meant for it fits on no other, and
// what an earlier test left waiting for a large one fits beside it.
func simulate(t *testing.T, env *kubetest.Env, name string) *simulated {
	t.Helper()
	n := &simulated{env: env, name: name}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	require.NoError(t, env.Client.Create(t.Context(), node))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		assert.NoError(t, env.Client.Delete(ctx, node))
		for _, pod := range n.pods(ctx, t) {
			assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(ctx, pod, client.GracePeriodSeconds(0))))
		}
	})
	before := node.DeepCopy()
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU: mustParse("5000"), corev1.ResourceMemory: mustParse("64Gi"), corev1.ResourcePods: mustParse("100"),
	}
	node.Status.Allocatable = node.Status.Capacity
	require.NoError(t, env.Client.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	return n
}

// report says that the node is ready, as a kubelet does every now and then.
func (n *simulated) report(t *testing.T) {
	t.Helper()
	if time.Since(n.beat) < heartbeat {
		return
	}
	node := &corev1.Node{}
	require.NoError(t, n.env.Client.Get(t.Context(), client.ObjectKey{Name: n.name}, node))
	before := node.DeepCopy()
	now := metav1.Now()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	require.NoError(t, n.env.Client.Status().Patch(t.Context(), node, client.MergeFrom(before)))
	n.beat = time.Now()
}

func (n *simulated) pods(ctx context.Context, t *testing.T) []*corev1.Pod {
	t.Helper()
	var list corev1.PodList
	assert.NoError(t, n.env.Client.List(ctx, &list, client.MatchingFields{"spec.nodeName": n.name}))
	out := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out
}

// run says that the node is ready and that each of its pods runs, and lets those
// go that are meant to end.
func (n *simulated) run(t *testing.T) {
	t.Helper()
	n.report(t)
	for _, pod := range n.pods(t.Context(), t) {
		if !pod.DeletionTimestamp.IsZero() {
			require.NoError(t, client.IgnoreNotFound(n.env.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0))))
			continue
		}
		if failures.PodCondition(pod, corev1.PodReady) == corev1.ConditionTrue {
			continue
		}
		before := pod.DeepCopy()
		now := metav1.Now()
		pod.Status.Phase, pod.Status.StartTime = corev1.PodRunning, &now
		pod.Status.Conditions = []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: pod.Spec.Containers[0].Name, Image: pod.Spec.Containers[0].Image, Ready: true, Started: new(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}}
		require.NoError(t, client.IgnoreNotFound(n.env.Client.Status().Patch(t.Context(), pod, client.MergeFrom(before))))
	}
}

// TestNode_Lost takes a node from under three kinds of Apps: its kubelet falls
// silent, which takes Kubernetes 20 s to notice.
func TestNode_Lost(t *testing.T) {
	suite.Release(t, "a node that is lost")
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	node := simulate(t, env, "simulated-"+ns)
	seen := failures.NewSightings()
	seen.In(t, env, ns)
	image := helloImage(t, env)
	large := runnerapi.Resources{Requests: runnerapi.ResourceAmounts{CPU: "800"}}
	apps := map[string]runnerapi.AppSpec{
		"web":  {Image: image, Resources: large},
		"db":   {Image: image, Resources: large, Type: runnerapi.TypeStatefulSet, GraceSeconds: new(int64(1))},
		"logs": {Image: image, Type: runnerapi.TypeDaemonSet},
	}
	all := func(what string, is func(string, runnerapi.App) bool) {
		t.Helper()
		within(t, nodePatience, what, func() bool {
			for name := range apps {
				a, err := e.Get(t.Context(), key(ns, name))
				require.NoError(t, err)
				if !is(name, a) {
					return false
				}
			}
			return true
		})
	}
	heal := func(string, runnerapi.App) bool { node.run(t); return true }
	fine := func(name string, a runnerapi.App) bool {
		return heal(name, a) && a.Status.Phase == runnerapi.PhaseHealthy
	}
	lost := func(words string) func(string, runnerapi.App) bool {
		return func(name string, a runnerapi.App) bool {
			d := a.Status.Diagnosis
			want := runnerapi.PhaseFailed
			if name == "logs" {
				want = runnerapi.PhaseDegraded // it serves on the real node
			}
			return d != nil && d.Cause == runnerapi.CauseNodeLost && a.Status.Phase == want && d.Object == "node/"+node.name &&
				strings.Contains(d.Message, words) && strings.Contains(d.Fix, "kubectl delete node "+node.name)
		}
	}
	for name, spec := range apps {
		seen.Expect(name, runnerapi.CauseNodeLost, failures.Disowned)
		deploy(t, e, key(ns, name), spec)
	}
	all("they run", fine)
	all("its kubelet is silent from now on", lost("has not answered since"))
	for name := range apps {
		seen.Delay(t, name)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "db-0"}}
	require.NoError(t, env.Client.Delete(t.Context(), pod), "as Kubernetes itself does after some minutes")
	within(t, podPatience, "the set's pod is not replaced", func() bool {
		a, err := e.Get(t.Context(), key(ns, "db"))
		require.NoError(t, err)
		return lost("cannot be replaced before the node confirms its end")("db", a)
	})
	all("it is back", fine)
}
