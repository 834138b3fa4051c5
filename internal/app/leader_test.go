package app_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// replica is an Engine whose way to the API server can be cut, and whose watches of Apps can be
// held back.
type replica struct {
	*app.Engine
	cut     atomic.Bool
	watches gate                   // of Apps
	counted atomic.Int64           // how often it has read past its cache which Apps there are
	foreign atomic.Pointer[string] // namespace in which it may not
	stop    func()
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func startReplica(t *testing.T, config app.Config) *replica {
	t.Helper()
	r := &replica{}
	config.RESTConfig = rest.CopyConfig(config.RESTConfig)
	config.RESTConfig.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(req *http.Request) (*http.Response, error) {
			if r.cut.Load() {
				return nil, errors.New("cut off from the API server")
			}
			counts := strings.Contains(req.Header.Get("Accept"), "PartialObjectMetadataList")
			if ns := r.foreign.Load(); counts && ns != nil && strings.Contains(req.URL.Path, "/namespaces/"+*ns+"/") {
				req = req.Clone(req.Context())
				req.Header.Set("Impersonate-User", "somebody-without-rights")
				req.Header.Del("Impersonate-Group")
			}
			answer, err := next.RoundTrip(req)
			switch ofApps := strings.HasSuffix(req.URL.Path, "/apps") && req.Method == http.MethodGet; {
			case err != nil || !ofApps:
			case req.URL.Query().Get("watch") != "":
				answer.Body = &gatedBody{ReadCloser: answer.Body, gate: &r.watches, closed: make(chan struct{})}
			case counts:
				r.counted.Add(1)
			}
			return answer, err
		})
	})
	config.Lease = cmp.Or(config.Lease, 3*time.Second)
	r.Engine, r.stop = startWith(t, config)
	return r
}

// holder is the replica that has the lease of the agent in a namespace.
func holder(t *testing.T, env *kubetest.Env, agent string) string {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if !exists(t, env, key(agent, "pipeops-agent"), lease) {
		return ""
	}
	return ptr.Deref(lease.Spec.HolderIdentity, "")
}

// gate holds back what is read, while it is shut.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil while it is open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gate) pass(unless <-chan struct{}) {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut == nil {
		return
	}
	select {
	case <-shut:
	case <-unless:
	}
}

// gatedBody is an answer that reaches its reader through a gate.
type gatedBody struct {
	io.ReadCloser
	gate   *gate
	once   sync.Once
	closed chan struct{}
}

func (b *gatedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.gate.pass(b.closed)
	return n, err
}

func (b *gatedBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.ReadCloser.Close()
}

// TestLeader_WaitsForCaches has a replica get the lease that does not know yet of an App's
// end, of which the former leader has told.
func TestLeader_WaitsForCaches(t *testing.T) {
	suite.Release(t, "further changes of the leader")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	received := &receiver{}
	config := limitedTo(env, ns)
	config.Announce = received.take
	config.Replica = "before"
	before := startReplica(t, config)
	eventually(t, "the first leads", before.Leads)
	config.Replica = "next"
	next := startReplica(t, config)
	t.Cleanup(next.watches.open)

	received.set(errors.New("the control plane is away"))
	k, marker := key(ns, "ended"), key(ns, "marker")
	deploy(t, before.Engine, k, web())
	rollOut(t, env, k)
	settledIn(t, next.Engine, k, runnerapi.PhaseHealthy)
	next.watches.close()
	require.NoError(t, before.Delete(t.Context(), k, byTest))
	received.set(nil)
	eventually(t, "the first tells the end", func() bool { return len(received.of(k.Name)) > 0 })
	before.StepDown()

	eventually(t, "the next one gets the lease", func() bool { return holder(t, env, config.Namespace) == "next" })
	eventually(t, "and gives it back, since it does not learn the state of the Apps", func() bool {
		return holder(t, env, config.Namespace) == "" || len(received.of(k.Name)) > 1
	})
	require.Equal(t, []events.Type{events.Removed}, types(received.of(k.Name)), "nothing of an App behind its end")
	next.watches.open()
	eventually(t, "it leads when it knows", next.Leads)
	deploy(t, next.Engine, marker, web())
	eventually(t, "and tells what is", func() bool { return len(received.of(marker.Name)) > 0 })
	assert.Equal(t, []events.Type{events.Removed}, types(received.of(k.Name)))
}

// TestReplica_SeesOthersWrites writes what the replica's watch has not reported.
func TestReplica_SeesOthersWrites(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	config := limitedTo(env, ns)
	config.Replica = "writes"
	writes := startReplica(t, config)
	config.Replica = "behind"
	behind := startReplica(t, config)
	t.Cleanup(behind.watches.open)
	known, created := key(ns, "known"), key(ns, "created")
	deploy(t, writes.Engine, known, web())
	rollOut(t, env, known)
	settledIn(t, behind.Engine, known, runnerapi.PhaseHealthy)

	behind.watches.close()
	a := deploy(t, writes.Engine, created, web())
	got, err := behind.Get(t.Context(), created)
	require.NoError(t, err, "it is not in the cache")
	assert.Equal(t, a.UID, got.UID)
	assert.Equal(t, runnerapi.OperationPending, outcome(t, behind.Engine, "put-app", a).State, "the App was not deleted")
	restarted, err := writes.Restart(t.Context(), known, byTest)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.OperationPending, outcome(t, behind.Engine, "restart-app", restarted).State, "no later change came")
	over, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	got, err = behind.Wait(over, known, restarted.Generation)
	require.NoError(t, err)
	assert.False(t, got.Settled(), "it was healthy before the restart")
	assert.Equal(t, restarted.RestartedAt, got.RestartedAt)
	over, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.NoError(t, behind.Events(over, known, runnerapi.EventOptions{}, func(runnerapi.AppEvent) error { return nil }))
	require.Error(t, over.Err(), "the events end when the App has settled, which was before the restart")
	scaled, err := writes.Scale(t.Context(), known, runnerapi.Scale{Replicas: new(int32(7))}, byTest)
	require.NoError(t, err)
	got, err = behind.GetLive(t.Context(), known)
	require.NoError(t, err)
	assert.Equal(t, scaled.Generation, got.Generation)
	require.NoError(t, writes.Delete(t.Context(), known, byTest))
	_, err = behind.GetLive(t.Context(), known)
	assert.True(t, problem.Is(err, problem.NotFound), "%v", err)
}

// TestLeader_ReconcilesAfterHeard has a former leader that was held take an App down and tell
// its end, when the next one leads, has looked at the Apps, and has not been heard yet.
func TestLeader_ReconcilesAfterHeard(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	received := &receiver{}
	received.setDeaf(true)
	config := limitedTo(env, ns)
	config.Replica, config.Announce = "next", received.take
	config.Lease = patience // or a busy machine makes it lose the lease, and look again for that
	next := startReplica(t, config)
	t.Cleanup(next.watches.open)
	k, marker := key(ns, "ended"), key(ns, "marker")
	deploy(t, next.Engine, k, web())
	rollOut(t, env, k)
	settledIn(t, next.Engine, k, runnerapi.PhaseHealthy)
	next.watches.close()
	env.MakeRoom(t, ns) // takes it down
	require.False(t, exists(t, env, k, &v1alpha1.App{}))
	before := next.counted.Load()
	received.setDeaf(false)
	eventually(t, "the next one looks again", func() bool { return next.counted.Load() > before || len(received.of(k.Name)) > 0 })
	assert.NotEmpty(t, received.heard().Lease, "when it was heard")
	assert.Empty(t, received.of(k.Name))
	next.watches.open()
	deploy(t, next.Engine, marker, web())
	eventually(t, "it tells what is", func() bool { return len(received.of(marker.Name)) > 0 })
	assert.Equal(t, []events.Type{events.Removed}, types(received.of(k.Name)), "that it is there was no longer so when the next one was heard")
}

// TestLeader_LostNamespace has an agent that is limited to some namespaces lose its
// rights in one of them, as it does when that is deleted.
func TestLeader_LostNamespace(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	kept, lost := ownNamespace(t, env), ownNamespace(t, env)
	config := limitedTo(env, kept, lost)
	config.Replica = "before"
	before := startReplica(t, config)
	eventually(t, "the first leads", before.Leads)
	config.Replica = "next"
	next := startReplica(t, config)
	next.foreign.Store(&lost)
	before.StepDown()
	eventually(t, "the next one leads", next.Leads)
	deploy(t, next.Engine, key(kept, "web"), web())
	rollOut(t, env, key(kept, "web"))
	settledIn(t, next.Engine, key(kept, "web"), runnerapi.PhaseHealthy)
}

// TestLeader_TermPerProcess has one killed and another one started under its name: it need not
// wait for the lease's end, and what the first sent is known from what it sends.
func TestLeader_TermPerProcess(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	received := &receiver{}
	config := limitedTo(env, ns)
	config.Replica, config.Announce, config.Lease = "same", received.take, 2*patience
	killed := startReplica(t, config)
	k := key(ns, "outlives")
	deploy(t, killed.Engine, k, web())
	eventually(t, "the first process tells, and notes it: else the second would tell it once more", func() bool {
		noted := get(t, env, k, &v1alpha1.App{}).Status.Announced
		return noted != nil && noted.Generation == 1
	})
	killed.cut.Store(true)
	killed.stop()
	require.Equal(t, "same", holder(t, env, config.Namespace), "it had no word to say")

	startReplica(t, config)
	rollOut(t, env, k)
	eventually(t, "the second tells", func() bool { return len(received.of(k.Name)) == 2 })
	told := received.of(k.Name)
	first, second := received.teller(told[0]), received.teller(told[1])
	assert.Equal(t, first.Lease, second.Lease)
	assert.Equal(t, first.Term+1, second.Term)
}
