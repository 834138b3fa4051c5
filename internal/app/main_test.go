package app_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/app/leader"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestMain(m *testing.M) {
	// The process' loggers are not test's: what was logged there after the first test ended was a
	// panic.
	app.AdoptLoggers(zerolog.New(os.Stderr).Level(zerolog.WarnLevel))
	os.Exit(kubetest.Main(m, kubetest.OwnClusters))
}

const (
	production = "production" // the managed namespace of test/kubetest/production.yaml
	patience   = 3 * time.Minute
)

var byTest = runnerapi.WriteOptions{Caller: runnerapi.Caller{Runner: "tester", RequestID: "req-1"}}

// receiver takes announcements as the control plane would.
type receiver struct {
	mu       sync.Mutex
	deaf     bool // to everything
	refuse   error
	events   []events.Event
	tries    []events.Event // those that were refused
	leader   leader.Leadership
	by       map[string]leader.Leadership // who told an event, by its ID
	compared [][]string                   // the Apps of each call that named all
}

func names(all []events.Event) (names []string) {
	for _, e := range all {
		names = append(names, e.Name)
	}
	return names
}

// take refuses events while the control plane is away, but hears who leads: so what would be told
// is seen.
func (r *receiver) take(_ context.Context, call events.Call) error {
	by, sent := call.By, call.Events
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.deaf {
		return errors.New("nobody listens")
	}
	if r.leader.Lease == by.Lease && r.leader.Term > by.Term {
		return errors.New("another one leads")
	}
	if r.leader.Lease == by.Lease && r.leader.Term == by.Term && r.leader.Call >= by.Call {
		return errors.New("a later call was heard") // each try is a call
	}
	r.leader = by
	if len(sent) == 0 && call.Current == nil {
		return nil
	}
	if r.refuse != nil {
		r.tries = append(r.tries, sent...)
		return r.refuse
	}
	if r.by == nil {
		r.by = map[string]leader.Leadership{}
	}
	for _, e := range sent {
		if _, known := r.by[e.ID]; call.Current != nil && known {
			continue // the state that was announced last, with the ID of that event
		}
		r.by[e.ID] = by
		r.events = append(r.events, e)
	}
	if call.Current != nil {
		r.compared = append(r.compared, names(sent))
	}
	return nil
}

// setDeaf has it hear nothing, or all again.
func (r *receiver) setDeaf(deaf bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deaf = deaf
}

// heard is who leads, as far as it was told.
func (r *receiver) heard() leader.Leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leader
}

// teller is who told an event.
func (r *receiver) teller(e events.Event) leader.Leadership {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by[e.ID]
}

func (r *receiver) set(refuse error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = refuse
}

// comparisons are the Apps of each call that named all.
func (r *receiver) comparisons() [][]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.compared
}

// of are the events of one App.
func (r *receiver) of(name string) []events.Event { return r.pick(name, false) }

func (r *receiver) refused(name string) []events.Event { return r.pick(name, true) }

func (r *receiver) pick(name string, refused bool) []events.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.events
	if refused {
		from = r.tries
	}
	var out []events.Event
	ended := map[string]bool{}
	for _, e := range from {
		if e.Name != name || !refused && ended[e.ID] {
			continue
		}
		// An end may be told twice, with the same ID, if the agent reads an App once more that it
		// has just let go.
		ended[e.ID] = e.Type == events.Removed
		out = append(out, e)
	}
	return out
}

// sendEvents is what an Engine sends events to.
type sendEvents = func(context.Context, events.Call) error

// start runs an Engine that is limited to a namespace, with the agent's own rights, until the
// test ends or stop is called.
func start(t *testing.T, env *kubetest.Env, namespace string, announce sendEvents) (e *app.Engine, stop func()) {
	t.Helper()
	config := limitedTo(env, namespace)
	config.Announce = announce
	return startWith(t, config)
}

// onControlPlane runs an Engine in its own namespace, where nothing runs pods, and returns the
// key of an App there.
func onControlPlane(t *testing.T, name string) (*kubetest.Env, *app.Engine, runnerapi.Key) {
	t.Helper()
	return in(t, kubetest.ControlPlane(t), name)
}

// onNodes is onControlPlane where a node runs pods.
func onNodes(t *testing.T, name string) (*kubetest.Env, *app.Engine, runnerapi.Key) {
	t.Helper()
	return in(t, kubetest.Full(t), name)
}

func in(t *testing.T, env *kubetest.Env, name string) (*kubetest.Env, *app.Engine, runnerapi.Key) {
	t.Helper()
	k := key(ownNamespace(t, env), name)
	e, _ := start(t, env, k.Namespace, nil)
	return env, e, k
}

// limitedTo is an Engine that does not meet those of other tests: the first namespace tells which
// agent it is.
func limitedTo(env *kubetest.Env, namespaces ...string) app.Config {
	return app.Config{
		RESTConfig: env.Agent, Namespace: kubetest.AgentOf(namespaces[0]), Namespaces: namespaces,
		Stabilization: soon(), SignIn: signIn(),
	}
}

// signIn has the key of sessions.
func signIn() ingress.SignIn {
	return ingress.SignIn{Key: func(context.Context) (signin.Key, error) {
		return signin.KeyOf([]byte("a secret of at least 32 bytes here")), nil
	}}
}

// everywhere is an Engine that works in all namespaces. Its test must not run beside others.
func everywhere(env *kubetest.Env) app.Config {
	return app.Config{RESTConfig: env.Agent, Namespace: kubetest.AgentNamespace, Stabilization: soon(), SignIn: signIn()}
}

// soon is a stabilization that tests can wait for.
func soon() *diagnose.Stabilization { return new(app.StabilizationFor(time.Second)) }

func startWith(t *testing.T, config app.Config, change ...func(*app.Engine)) (e *app.Engine, stop func()) {
	t.Helper()
	config.Log = zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel)
	e, err := app.New(config)
	require.NoError(t, err)
	for _, f := range change {
		f(e)
	}
	stop = await.Background(t, "the engine", e.Run)
	eventually(t, "the engine is ready", func() bool {
		_, err := e.Routes(t.Context())
		return err == nil && e.Ready()
	})
	return e, stop
}

// eventually waits for a condition that needs no pods.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	within(t, patience, what, condition)
}

// within waits for a condition, with a limit that suits it.
func within(t *testing.T, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	if !polled(limit, condition) {
		require.FailNow(t, "not within "+limit.String(), what)
	}
}

// polled reports whether a condition is met within a limit. It looks ever more seldom: many tests
// wait at a time.
func polled(limit time.Duration, condition func() bool) bool {
	deadline := time.Now().Add(limit)
	for pause := 5 * time.Millisecond; !condition(); pause = min(2*pause, 100*time.Millisecond) {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// ownNamespace is a fresh managed namespace with the agent's rights in it.
func ownNamespace(t *testing.T, env *kubetest.Env) string {
	t.Helper()
	ns := env.Namespace(t)
	t.Cleanup(func() { env.MakeRoom(t, ns) })
	return ns
}

// contains says whether a text has all of these parts.
func contains(text string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func key(namespace, name string) runnerapi.Key {
	return runnerapi.Key{Namespace: namespace, Name: name}
}
