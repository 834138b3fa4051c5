package evidence

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/podport"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var webKey = runnerapi.Key{Namespace: "shop", Name: "web"}

func newStore() *appcache.Store {
	return appcache.New(nil, nil, objectmeta.Scope{}, zerolog.Nop(), time.Now)
}

func web() *v1alpha1.App {
	return &v1alpha1.App{
		ObjectMeta: metav1.ObjectMeta{Namespace: webKey.Namespace, Name: webKey.Name},
		Spec:       runnerapi.AppSpec{Image: "web:1", Ports: []runnerapi.Port{{Port: 80}, {Port: 81}}},
	}
}

// readyPod returns a pod that has been ready since now.
func readyPod(uid string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: uid, UID: types.UID(uid)},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		}},
	}
}

// program is what listens in a pod.
type program struct {
	open  sync.Map // addresses
	tries atomic.Int32
	mute  atomic.Bool // there is no way to the pod
}

func (p *program) reach() podport.Reach {
	return podport.Reach{
		Dial: func(_ context.Context, address string) error {
			p.tries.Add(1)
			if _, open := p.open.Load(address); open {
				return nil
			}
			return syscall.ECONNREFUSED
		},
		Forward: func(_ context.Context, _ *corev1.Pod, port int32) error {
			if p.mute.Load() {
				return errors.New("no route")
			}
			return fmt.Errorf("port %d: connection refused", port)
		},
	}
}

// tried runs a test with the ports of an App's pod, whose program has a minute until it listens.
func tried(t *testing.T, run func(t *testing.T, s *appcache.Store, p *ports, in *program, look func() diagnose.PortTry)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, in, leads := newStore(), &program{}, true
		p := newPorts(s, in.reach(), func() bool { return leads }, time.Now)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); p.run(ctx) }()
		a, pod := web(), readyPod("a")
		run(t, s, p, in, func() diagnose.PortTry {
			return p.of(a, []*corev1.Pod{pod}, diagnose.Stabilization{Unprobed: time.Minute})[pod.UID]
		})
		cancel()
		<-ended
	})
}

func TestPorts_TriedUntilOpen(t *testing.T) {
	tried(t, func(t *testing.T, s *appcache.Store, _ *ports, in *program, look func() diagnose.PortTry) {
		in.open.Store("10.0.0.1:80", true)
		look()
		assert.Equal(t, webKey, (<-s.Resynced()).Object.Key(), "that port 81 is refused is news")
		got := look()
		assert.EqualValues(t, 81, got.Idle, "another port is open")
		assert.Zero(t, got.Refused)
		in.open.Store("10.0.0.1:81", true)
		<-s.Resynced()
		assert.Zero(t, look().Idle)
		before := in.tries.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, before, in.tries.Load(), "what has listened once is not tried again")
	})
}

func TestPorts_LooksAgainAtEndOfPeriod(t *testing.T) {
	tried(t, func(t *testing.T, s *appcache.Store, p *ports, _ *program, look func() diagnose.PortTry) {
		began := time.Now()
		look()
		<-s.Resynced()
		assert.Less(t, time.Since(began), time.Minute)
		<-s.Resynced() // tries between change nothing
		assert.Equal(t, time.Minute, time.Since(began).Truncate(time.Second))
		assert.NotZero(t, look().Refused)
		p.forget(webKey)
		assert.Empty(t, p.pods)
	})
}

func TestPorts_GivesUpUnreachablePod(t *testing.T) {
	tried(t, func(t *testing.T, _ *appcache.Store, p *ports, in *program, look func() diagnose.PortTry) {
		in.mute.Store(true)
		look()
		time.Sleep(time.Hour)
		synctest.Wait()
		before := in.tries.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Equal(t, before, in.tries.Load())
		assert.Zero(t, look().Refused)
		p.of(web(), []*corev1.Pod{readyPod("b")}, diagnose.Stabilization{Unprobed: time.Minute})
		assert.NotContains(t, p.pods, types.UID("a"), "it is gone")
		assert.Contains(t, p.pods, types.UID("b"))
	})
}

func TestPorts_OnlyLeaderTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := &program{}
		p := newPorts(newStore(), in.reach(), func() bool { return false }, time.Now)
		defer p.queue.ShutDown()
		p.of(web(), []*corev1.Pod{readyPod("a")}, diagnose.Stabilization{Unprobed: time.Minute})
		p.try(t.Context(), "a")
		assert.Zero(t, in.tries.Load())
		assert.Empty(t, p.pods, "the next leader begins again")
		none := web()
		none.Spec.Ports = nil
		assert.Nil(t, p.of(none, []*corev1.Pod{readyPod("a")}, diagnose.Stabilization{}))
		assert.Empty(t, p.pods)
	})
}

// eventWatch returns watches of events, and the stream that each of them reads.
func eventWatch(s *appcache.Store) (*eventWatches, *watch.FakeWatcher, *kubernetesfake.Clientset) {
	cluster, stream := kubernetesfake.NewClientset(), watch.NewFake()
	cluster.PrependWatchReactor("events", clienttesting.DefaultWatchReactor(stream, nil))
	return newEventWatches(cluster.CoreV1(), s), stream, cluster
}

func TestEventWatches_ReconcileOnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		w, stream, cluster := eventWatch(s)
		of, reasons := fields.Set{"involvedObject.name": "web-1"}, []string{"FailedMount"}
		w.await(webKey, of, "7", reasons)
		assert.Empty(t, w.running, "before Start there is none")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); w.run(ctx) }()
		synctest.Wait()
		w.await(webKey, of, "7", reasons)
		w.await(webKey, of, "8", reasons)
		synctest.Wait()
		assert.Len(t, cluster.Actions(), 1, "one watch an object")
		stream.Add(&corev1.Event{Reason: "Pulled"})
		stream.Add(&corev1.Event{Reason: "FailedMount"})
		assert.Equal(t, webKey, (<-s.Resynced()).Object.Key())
		synctest.Wait()
		w.mu.Lock()
		assert.Empty(t, w.running)
		w.mu.Unlock()
		cancel()
		<-ended
		w.await(webKey, of, "9", reasons)
		assert.Empty(t, w.running, "after the end no new one begins")
	})
}

func TestEventWatches_Bounded(t *testing.T) {
	w, _, _ := eventWatch(newStore())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.until = ctx
	for i := range maxAwaited {
		w.running[fmt.Sprint(i)] = true
	}
	w.await(webKey, fields.Set{"involvedObject.name": "web-1"}, "7", nil)
	assert.Len(t, w.running, maxAwaited)
	w.running = map[string]bool{}
	failing := kubernetesfake.NewClientset()
	failing.PrependWatchReactor("events", clienttesting.DefaultWatchReactor(nil, errors.New("forbidden")))
	w.events = failing.CoreV1()
	require.False(t, w.comes(t.Context(), "shop", nil, "", nil), "the App is reconciled later")
}
