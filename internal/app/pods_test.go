package app_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// podPatience is how long real pods may take.
const podPatience = 5 * time.Minute

// hello is the image of test/apps/hello, loaded once.
var hello struct {
	sync.Once
	ref string
	err error
}

func helloImage(t *testing.T, env *kubetest.Env) string {
	t.Helper()
	hello.Do(func() { hello.ref, hello.err = env.Cluster.LoadApp(context.Background(), "hello") })
	require.NoError(t, hello.err)
	return hello.ref
}

// syncing has the kubelet look at the pods of a namespace about once a second while a test waits
// for a condition: what they miss may be there, and by itself the kubelet tries again after 10 to
// 15 s.
func syncing(t *testing.T, env *kubetest.Env, ns string, condition func() bool) func() bool {
	var last time.Time
	return func() bool {
		if time.Since(last) > time.Second {
			last = time.Now()
			refresh(t, env, ns, last)
		}
		return condition()
	}
}

// refresh changes each pod of a namespace in a way that is of no importance.
func refresh(t *testing.T, env *kubetest.Env, ns string, at time.Time) {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(ns)))
	patch := client.RawPatch(client.Merge.Type(), []byte(`{"metadata":{"annotations":{"refreshed":"`+at.Format(time.RFC3339Nano)+`"}}}`))
	for i := range pods.Items {
		require.NoError(t, client.IgnoreNotFound(env.Client.Patch(t.Context(), &pods.Items[i], patch)))
	}
}

func settled(t *testing.T, e *app.Engine, k runnerapi.Key, generation int64) runnerapi.App {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), podPatience)
	defer cancel()
	a, err := e.Wait(ctx, k, generation)
	require.NoError(t, err)
	return a
}

// ready has the readiness probe fail soon, but neither while a busy machine starts the program nor
// because it answers slowly.
func ready(port int32) runnerapi.Probes {
	return runnerapi.Probes{
		Startup: &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: port}, PeriodSeconds: 1, FailureThreshold: 90},
		Readiness: &runnerapi.Probe{
			HTTP: &runnerapi.HTTPProbe{Path: "/readyz", Port: port}, PeriodSeconds: 1, TimeoutSeconds: 20, FailureThreshold: 2,
		},
	}
}

// TestApp_RealLifecycle takes one App through its life: deploy, scale, a bad update that
// leaves it serving, its cure, a restart, logs, delete.
func TestApp_RealLifecycle(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	image := helloImage(t, env)
	r := &receiver{}
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, r.take)
	k := key(ns, "life")
	spec := runnerapi.AppSpec{Image: image, Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080), EnvFrom: []runnerapi.EnvSource{{Secret: "settings"}}}
	deploy(t, e, k, spec)
	a := settled(t, e, k, 1)
	require.NotNil(t, a.Status.Diagnosis)
	require.Equal(t, runnerapi.CauseMissingSecret, a.Status.Diagnosis.Cause)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "settings"}, StringData: map[string]string{"GREETING": "hi"},
	}))
	within(t, podPatience, "it heals by itself", syncing(t, env, ns, func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseHealthy
	}))

	scaled, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(3))}, byTest)
	require.NoError(t, err)
	a = settled(t, e, k, scaled.Generation)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase)
	assert.EqualValues(t, 3, a.Status.ReadyReplicas)

	bad := spec
	bad.Image, bad.Replicas = "apps.test/no-such-image:3", new(int32(3))
	broken := deploy(t, e, k, bad)
	a = settled(t, e, k, broken.Generation)
	assert.Equal(t, runnerapi.PhaseDegraded, a.Status.Phase, "the old version serves")
	assert.Equal(t, runnerapi.CauseImageNotFound, a.Status.Diagnosis.Cause)
	assert.EqualValues(t, 3, a.Status.ReadyReplicas)

	spec.Replicas = new(int32(2))
	cured := deploy(t, e, k, spec)
	a = settled(t, e, k, cured.Generation)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase, a.Status.Diagnosis)
	assert.EqualValues(t, 2, a.Status.Replicas)
	assert.Nil(t, a.Status.Diagnosis)

	before := podNames(t, env, ns)
	_, err = e.Restart(t.Context(), k, byTest)
	require.NoError(t, err)
	a = settled(t, e, k, cured.Generation)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase, a.Status.Diagnosis)
	for _, name := range podNames(t, env, ns) {
		assert.NotContains(t, before, name, "a wait after a restart waits for the new pods")
	}

	require.NoError(t, e.Delete(t.Context(), k, byTest))
	within(t, podPatience, "no pod is left", func() bool { return len(podNames(t, env, ns)) == 0 })
	var sets appsv1.ReplicaSetList
	require.NoError(t, env.Client.List(t.Context(), &sets, client.InNamespace(ns)))
	assert.Empty(t, sets.Items)
	eventually(t, "the end is announced", func() bool {
		all := r.of(k.Name)
		return all[len(all)-1].Type == events.Removed
	})
	assert.Subset(t, types(r.of(k.Name)), []events.Type{events.Failed, events.Healthy, events.Degraded, events.Removed})
}

// podNames are the pods that are not about to go.
func podNames(t *testing.T, env *kubetest.Env, ns string) []string {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(ns)))
	var names []string
	for _, p := range pods.Items {
		if p.DeletionTimestamp.IsZero() {
			names = append(names, p.Name)
		}
	}
	return names
}

func TestLogs_OfRealPods(t *testing.T) {
	t.Parallel()
	env, e, k := onNodes(t, "talker")
	spec := runnerapi.AppSpec{Image: helloImage(t, env), Replicas: new(int32(2)), Probes: ready(8080)}
	spec.Patches = patches(t, podPatch("initContainers: [{name: proxy, image: '"+spec.Image+"', args: ['-listen=:8082'], restartPolicy: Always}]"))
	deploy(t, e, k, spec)
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, 1).Status.Phase)

	var lines []runnerapi.LogLine
	keep := func(l runnerapi.LogLine) error { lines = append(lines, l); return nil }
	require.NoError(t, e.Logs(t.Context(), k, runnerapi.LogOptions{Tail: -1}, keep))
	require.NotEmpty(t, lines)
	assert.True(t, slices.IsSortedFunc(lines, func(a, b runnerapi.LogLine) int { return a.Time.Compare(b.Time) }), "merged by time")
	assert.Len(t, podsIn(lines), 2)

	all := lines
	lines = nil
	require.NoError(t, e.Logs(t.Context(), k, runnerapi.LogOptions{Tail: 1}, keep))
	assert.Len(t, lines, 2, "the last of each pod")
	var since time.Time
	old := func(l runnerapi.LogLine) bool { return l.Time.Before(since) }
	eventually(t, "what was said first is of another second: Kubernetes goes by whole ones", func() bool {
		since = time.Now().Truncate(time.Second)
		return old(all[0])
	})
	lines = nil
	require.NoError(t, e.Logs(t.Context(), k, runnerapi.LogOptions{Tail: -1, Since: time.Nanosecond}, keep))
	assert.False(t, slices.ContainsFunc(lines, old), "of %v one is older than %s", lines, since)
	lines = nil
	require.NoError(t, e.Logs(t.Context(), k, runnerapi.LogOptions{Tail: -1, Container: "proxy"}, keep))
	assert.Len(t, podsIn(lines), 2, "of a sidecar")
	assert.True(t, slices.ContainsFunc(lines, func(l runnerapi.LogLine) bool { return strings.Contains(l.Line, "8082") }))
	err := e.Logs(t.Context(), k, runnerapi.LogOptions{Tail: 1, Container: "sidecar"}, keep)
	assert.Equal(t, runnerapi.CodeNotFound, code(err))
	err = e.Logs(t.Context(), key(k.Namespace, "nobody"), runnerapi.LogOptions{}, keep)
	assert.Equal(t, runnerapi.CodeNotFound, code(err))
}

// TestLogs_FollowSeesNewPods follows across a restart of all pods: nothing is lost
// and nothing comes twice.
func TestLogs_FollowSeesNewPods(t *testing.T) {
	suite.Release(t, "logs over the life of pods")
	t.Parallel()
	env, e, k := onNodes(t, "follow")
	deploy(t, e, k, runnerapi.AppSpec{Image: helloImage(t, env), Probes: ready(8080)})
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, 1).Status.Phase)

	var mu sync.Mutex
	var lines []runnerapi.LogLine
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- e.Logs(ctx, k, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, l)
			return nil
		})
	}()
	has := func(part string, pods int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			found := map[string]bool{}
			for _, l := range lines {
				if strings.Contains(l.Line, part) {
					found[l.Pod] = true
				}
			}
			return len(found) >= pods
		}
	}
	eventually(t, "the first pod's lines", has("listening on", 1))
	_, err := e.Restart(t.Context(), k, byTest)
	require.NoError(t, err)
	within(t, podPatience, "the new pod's lines", has("listening on", 2))
	within(t, podPatience, "the old pod's last lines", has("terminating", 1))
	cancel()
	require.NoError(t, await.Receive(t, done, "the log's end"))
	seen := map[runnerapi.LogLine]bool{}
	for _, l := range lines {
		assert.False(t, seen[l], "twice: %+v", l)
		seen[l] = true
	}
}

// TestLogs_OfEachContainer of a pod that ends again and again: the one that prepared it, the one
// that runs, over its restart, and the run before that.
func TestLogs_OfEachContainer(t *testing.T) {
	suite.Release(t, "logs over the life of pods")
	t.Parallel()
	env, e, k := onNodes(t, "restarts")
	deploy(t, e, k, runnerapi.AppSpec{
		Image: helloImage(t, env), Args: []string{"-crash-after=2s", "-exit-code=9"},
		InitContainers: []runnerapi.InitContainer{{Name: "prepare", Args: []string{"migrate"}}},
	})
	ctx, cancel := context.WithTimeout(t.Context(), podPatience)
	defer cancel()
	began, pods := 0, map[string]bool{}
	within(t, podPatience, "there is a pod", func() bool {
		return e.Logs(ctx, k, runnerapi.LogOptions{Tail: 1}, func(runnerapi.LogLine) error { return nil }) == nil
	})
	err := e.Logs(ctx, k, runnerapi.LogOptions{Follow: true, Tail: -1}, func(l runnerapi.LogLine) error {
		pods[l.Pod] = true
		if strings.Contains(l.Line, "listening on") {
			if began++; began == 2 {
				cancel()
			}
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, 2, began, "what ran before and what runs now")
	assert.Len(t, pods, 1)
	for _, c := range []struct {
		opts runnerapi.LogOptions
		says string
	}{
		{runnerapi.LogOptions{Tail: -1, Container: "prepare"}, "migrate: done"},
		{runnerapi.LogOptions{Tail: -1, Previous: true}, "crashing on purpose with exit code 9"},
	} {
		var said strings.Builder
		require.NoError(t, e.Logs(t.Context(), k, c.opts, func(l runnerapi.LogLine) error { said.WriteString(l.Line + "\n"); return nil }))
		assert.Contains(t, said.String(), c.says)
	}
	require.NoError(t, e.Delete(t.Context(), k, byTest))
}

func podsIn(lines []runnerapi.LogLine) map[string]bool {
	pods := map[string]bool{}
	for _, l := range lines {
		pods[l.Pod] = true
	}
	return pods
}
