package announce

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// registry is a control plane's: what it has, and how often it was asked.
type registry struct {
	mu     sync.Mutex
	agents []Agent
	asked  int
	err    error
	during func() // happens while the snapshot is on its way
}

func (r *registry) snapshot(context.Context) ([]Agent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	agents := slices.Clone(r.agents)
	if r.during != nil {
		r.during()
	}
	return agents, r.err
}

func (r *registry) set(err error, agents ...Agent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.agents, r.err = agents, err
}

func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asked
}

func at(id string, sequence uint64, state State) Agent {
	a := testAgent(id)
	a.Sequence, a.State = sequence, state
	return a
}

func newTestDirectory(t *testing.T, r *registry) *Directory {
	t.Helper()
	d, err := NewDirectory(DirectoryConfig{Snapshot: r.snapshot})
	require.NoError(t, err)
	return d
}

func handle(t *testing.T, d *Directory, events ...Event) {
	t.Helper()
	for _, e := range events {
		require.NoError(t, d.Handle(t.Context(), e))
	}
}

func stateEvent(t *testing.T, typ Type, id string, sequence uint64, state State) Event {
	t.Helper()
	e, err := NewAgentEvent(typ, "/controlplane", at(id, sequence, state), sequence, noon)
	require.NoError(t, err)
	return e
}

func wantState(t *testing.T, d *Directory, id string, state State, sequence uint64) {
	t.Helper()
	a, err := d.Get(id)
	if err != nil || a.State != state || a.Sequence != sequence {
		t.Errorf("agent %s: %s at %d (%v), want %s at %d", id, a.State, a.Sequence, err, state, sequence)
	}
}

func wantRefresh(t *testing.T, d *Directory, want bool) {
	t.Helper()
	select {
	case <-d.wanted:
		assert.True(t, want, "a snapshot is wanted without need")
	default:
		assert.False(t, want, "no snapshot is wanted in spite of a gap")
	}
}

func TestDirectory_FollowsEvents(t *testing.T) {
	r := &registry{}
	d := newTestDirectory(t, r)
	handle(t, d, stateEvent(t, AgentRegistered, "a1", 1, StatePending), stateEvent(t, AgentOnline, "a1", 2, StateOnline),
		appEvent(t, AppHealthy, "a1", 3))
	wantState(t, d, "a1", StateOnline, 3)
	handle(t, d, stateEvent(t, AgentOnline, "a1", 2, StateOnline), stateEvent(t, AgentOffline, "a1", 4, StateOffline),
		stateEvent(t, AgentOnline, "a1", 2, StateOnline)) // duplicates, late
	wantState(t, d, "a1", StateOffline, 4)
	wantRefresh(t, d, false)
	handle(t, d, stateEvent(t, AgentRemoved, "a1", 5, StateRevoked), stateEvent(t, AgentOnline, "a1", 2, StateOnline))
	_, err := d.Get("a1")
	assert.ErrorIs(t, err, ErrUnknownAgent, "a removed agent came back with a late event")
}

func TestDirectory_DetectsGaps(t *testing.T) {
	d := newTestDirectory(t, &registry{})
	handle(t, d, stateEvent(t, AgentRegistered, "a1", 1, StateOnline))
	wantRefresh(t, d, false)
	handle(t, d, stateEvent(t, AgentOffline, "a1", 3, StateOffline))
	wantRefresh(t, d, true)
	wantState(t, d, "a1", StateOffline, 3) // an agent event says it all, even so
	handle(t, d, appEvent(t, AppFailed, "a2", 9))
	wantRefresh(t, d, true)
	assert.Len(t, d.List(), 1, "an app event made an agent of nothing")
}

func TestDirectory_SnapshotKeepsNewer(t *testing.T) {
	r := &registry{}
	d := newTestDirectory(t, r)
	handle(t, d, stateEvent(t, AgentRegistered, "gone", 1, StateOnline), stateEvent(t, AgentRegistered, "old", 1, StateOnline),
		stateEvent(t, AgentRegistered, "ahead", 9, StateOnline))
	r.set(nil, at("old", 5, StateOffline), at("new", 3, StateOnline), at("moved", 1, StateOnline), at("ahead", 4, StateOffline),
		at("removed", 1, StateOnline))
	r.during = func() {
		handle(t, d, stateEvent(t, AgentOnline, "moved", 2, StateOffline), stateEvent(t, AgentRegistered, "late", 1, StatePending),
			stateEvent(t, AgentRemoved, "removed", 2, StateRevoked))
	}
	require.NoError(t, d.sync(t.Context()))
	wantState(t, d, "old", StateOffline, 5)
	wantState(t, d, "new", StateOnline, 3)
	wantState(t, d, "moved", StateOffline, 2) // newer than the snapshot
	wantState(t, d, "late", StatePending, 1)  // likewise
	wantState(t, d, "ahead", StateOffline, 4) // a registry that was set back is right
	for _, id := range []string{"gone", "removed"} {
		_, err := d.Get(id)
		assert.Error(t, err, "%s is still there", id)
	}
	r.during = nil
	r.set(nil, at("old", 5, StateOffline))
	require.NoError(t, d.sync(t.Context()))
	assert.True(t, len(d.List()) == 1 && len(d.removed) == 0, "%d agents and %d removals are kept", len(d.List()), len(d.removed))
}

func TestDirectory_GetByName(t *testing.T) {
	r := &registry{}
	one, two, other := at("a1", 1, StateOnline), at("a2", 1, StateOnline), at("a3", 1, StateOnline)
	one.Name, two.Name, other.Name = "twin", "twin", "a1" // one is called as another's ID
	r.set(nil, one, two, other)
	d := newTestDirectory(t, r)
	require.NoError(t, d.sync(t.Context()))
	var ambiguous *AmbiguousError
	if _, err := d.Get("twin"); !errors.As(err, &ambiguous) || !slices.Equal(ambiguous.IDs, []string{"a1", "a2"}) {
		t.Errorf("Get(twin): %v", err)
	}
	if a, err := d.Get("a1"); err != nil || a.ID != "a1" {
		t.Errorf("an ID must win over a name: %v, %v", a.ID, err)
	}
	if _, err := d.Get("nobody"); !errors.Is(err, ErrUnknownAgent) || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("Get(nobody): %v", err)
	}
}

func TestDirectory_SurvivesOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &registry{err: errors.New("away")}
		d := newTestDirectory(t, r)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()

		time.Sleep(time.Minute)
		if tries := r.count(); d.Synced() || tries < 5 || tries > 30 {
			t.Fatalf("synced %v after %d tries without a control plane", d.Synced(), tries)
		}
		r.set(nil, at("a1", 1, StateOnline))
		require.NoError(t, d.WaitSynced(ctx))
		wantState(t, d, "a1", StateOnline, 1)

		synctest.Wait()
		time.Sleep(2 * refreshPause)
		before := r.count()
		for i := range uint64(50) { // gaps, all at once
			handle(t, d, stateEvent(t, AgentOnline, "a1", 10+2*i, StateOnline))
		}
		r.set(nil, at("a1", 200, StateOffline))
		time.Sleep(2 * refreshPause)
		synctest.Wait()
		n := r.count() - before
		assert.True(t, n >= 1 && n <= 3, "50 gaps made %d snapshots", n)
		wantState(t, d, "a1", StateOffline, 200)

		r.set(errors.New("away again"))
		time.Sleep(10 * time.Minute)
		wantState(t, d, "a1", StateOffline, 200) // what is known stays
		r.set(nil, at("a1", 201, StateOnline))
		time.Sleep(time.Minute)
		wantState(t, d, "a1", StateOnline, 201)

		cancel()
		assert.ErrorIs(t, <-ended, context.Canceled)
	})
}

func TestDirectory_Watch(t *testing.T) {
	r := &registry{}
	r.set(nil, at("a1", 1, StateOnline))
	d := newTestDirectory(t, r)
	require.NoError(t, d.sync(t.Context()))
	got := make(chan Change, 16)
	done := errors.New("seen enough")
	ended := make(chan error, 1)
	go func() {
		ended <- d.Watch(t.Context(), func(c Change) error {
			got <- c
			if c.Type == AgentRemoved {
				return done
			}
			return nil
		})
	}()
	c := await.Receive(t, got, "the first change")
	assert.True(t, c.Initial && c.Agent.ID == "a1", "first change: %+v", c)
	handle(t, d, appEvent(t, AppFailed, "a1", 2))
	c = await.Receive(t, got, "the App's change")
	assert.True(t, c.Type == AppFailed && c.App.Fix == "push it" && c.Agent.Name == "shop-a1", "app change: %+v", c)
	r.set(nil, at("a1", 4, StateOffline), at("a2", 1, StateOnline))
	require.NoError(t, d.sync(t.Context()))
	one, two := await.Receive(t, got, "a change of the snapshot"), await.Receive(t, got, "another one")
	if one.Type != AgentOffline || two.Type != AgentRegistered {
		t.Errorf("changes that a snapshot showed: %s, %s", one.Type, two.Type)
	}
	r.set(nil, at("a1", 4, StateOffline))
	require.NoError(t, d.sync(t.Context()))
	assert.ErrorIs(t, await.Receive(t, ended, "the end of Watch"), done)
	assert.Empty(t, d.watchers, "a watcher is left behind")
}

func TestDirectory_EndsSlowWatcher(t *testing.T) {
	d := newTestDirectory(t, &registry{})
	handle(t, d, stateEvent(t, AgentRegistered, "a1", 1, StateOnline))
	hold, holding := make(chan struct{}), make(chan struct{}, watchBuffer)
	ended := make(chan error, 1)
	go func() {
		ended <- d.Watch(t.Context(), func(Change) error {
			holding <- struct{}{}
			<-hold
			return nil
		})
	}()
	await.Receive(t, holding, "the first change")
	for i := range uint64(watchBuffer + 2) {
		handle(t, d, stateEvent(t, AgentUpdated, "a1", 2+i, StateOnline))
	}
	close(hold)
	assert.ErrorIs(t, await.Receive(t, ended, "the end of Watch"), ErrSlowWatcher)
}

func TestDirectory_MalformedIsPermanent(t *testing.T) {
	d := newTestDirectory(t, &registry{})
	var permanent *permanentError
	assert.ErrorAs(t, d.Handle(t.Context(), Event{Type: AgentOnline, AgentID: "a1", Sequence: 1}), &permanent)
}

// The directory receives all events, or stands by, or loses the broker.
func TestDirectory_RefreshInterval(t *testing.T) {
	for name, c := range map[string]struct {
		begin, meanwhile func(*rabbitmq.Link)
		want             time.Duration
	}{
		"hears all":        {func(*rabbitmq.Link) {}, func(*rabbitmq.Link) {}, refreshEvery},
		"stands by":        {func(l *rabbitmq.Link) { l.Standby(true) }, func(*rabbitmq.Link) {}, refreshAlone},
		"its turn comes":   {func(l *rabbitmq.Link) { l.Standby(true) }, func(l *rabbitmq.Link) { l.Standby(false) }, refreshEvery},
		"loses the broker": {func(*rabbitmq.Link) {}, func(l *rabbitmq.Link) { l.Disconnected(errors.New("gone")) }, refreshAlone},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d, err := NewDirectory(DirectoryConfig{Snapshot: new(registry).snapshot, Events: &ConsumerConfig{
					Config: rabbitmq.Config{URLs: []string{"amqps://127.0.0.1/"}, Log: zerolog.Nop()}, Queue: rabbitmq.RunnerQueue("r"),
				}})
				require.NoError(t, err)
				d.consumer.link.Connected("127.0.0.1:5671")
				c.begin(d.consumer.link)
				soon := time.AfterFunc(time.Second, func() { c.meanwhile(d.consumer.link) })
				defer soon.Stop()
				began := time.Now()
				d.idle(t.Context())
				assert.Equal(t, c.want, time.Since(began))
			})
		})
	}
}

// Events come as the worst of queues could deliver them: repeated, and behind their successors.
// The known state never goes back, and ends with the last event.
func TestDirectory_IgnoresStaleEvents(t *testing.T) {
	const count, prefetch = 60, 16
	states := []State{StateOnline, StateOffline}
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- a test
		d := newTestDirectory(t, &registry{})
		var waiting []Event
		for n := uint64(1); n <= count; n++ {
			waiting = append(waiting, stateEvent(t, AgentUpdated, "a1", n, states[n%2]))
		}
		for known := uint64(0); len(waiting) > 0; {
			ahead := min(prefetch, len(waiting))
			i := random.IntN(ahead)
			e := waiting[i]
			if random.IntN(4) > 0 { // else its reader died before it could acknowledge it
				waiting = append(waiting[:i], waiting[i+1:]...)
			}
			handle(t, d, e)
			known = max(known, e.Sequence)
			wantState(t, d, "a1", states[known%2], known)
		}
		wantState(t, d, "a1", states[count%2], count)
	}
}

// The broker was down: the snapshot that is requested on reconnect comes before the events that
// waited in the outbox. Each reaches the watchers, once.
func TestDirectory_OutageLosesNothing(t *testing.T) {
	r := &registry{}
	r.set(nil, at("a1", 5, StateOnline))
	d := newTestDirectory(t, r)
	require.NoError(t, d.sync(t.Context()))
	d.heard["a1"] = 5
	changes := watched(t, d)
	r.set(nil, at("a1", 9, StateOffline))
	require.NoError(t, d.sync(t.Context()))
	waited := []Event{appEvent(t, AppFailed, "a1", 6), routeEvent(t, "a1", 7), stateEvent(t, AgentOffline, "a1", 8, StateOffline), appEvent(t, AppHealthy, "a1", 9)}
	handle(t, d, append(waited, waited...)...)
	assert.Equal(t, []string{"agent.offline", "app.failed", "route.serving", "app.healthy"}, changes())
	wantRefresh(t, d, false)
	wantState(t, d, "a1", StateOffline, 9)
}

// A database that was restored continues after an older event, with higher sequences.
func TestDirectory_ControlPlaneRestored(t *testing.T) {
	r := &registry{}
	r.set(nil, at("a1", 1000, StateOnline))
	d := newTestDirectory(t, r)
	require.NoError(t, d.sync(t.Context()))
	handle(t, d, appEvent(t, AppHealthy, "a1", 1001))
	changes := watched(t, d)
	after := appEvent(t, AppFailed, "a1", 2000)
	after.Previous = 990 // the last one in the backup
	handle(t, d, after)
	assert.Equal(t, []string{"app.failed"}, changes())
	wantRefresh(t, d, true)
}

// A queue lost events: the timeline has them. Without a durable queue, so it does after a snapshot.
func TestDirectory_ReadsMissedFromTimeline(t *testing.T) {
	r := &registry{}
	r.set(nil, at("a1", 5, StateOnline))
	var asked []TimelineQuery
	d, err := NewDirectory(DirectoryConfig{Snapshot: r.snapshot, Timeline: func(_ context.Context, id string, q TimelineQuery) (TimelinePage, error) {
		asked = append(asked, q)
		page := TimelinePage{More: q.After < 7}
		for n := q.After + 1; n < min(q.Before, q.After+2); n++ {
			page.Events = append(page.Events, appEvent(t, AppDegraded, id, n))
		}
		return page, nil
	}})
	require.NoError(t, err)
	require.NoError(t, d.sync(t.Context()))
	changes := watched(t, d)
	handle(t, d, appEvent(t, AppFailed, "a1", 8))
	assert.Equal(t, []string{"app.degraded", "app.degraded", "app.failed"}, changes())
	assert.Equal(t, TimelineQuery{After: 5, Before: 8, OldestFirst: true, Limit: MaxTimelineLimit}, asked[0])
	r.set(nil, at("a1", 9, StateOnline))
	require.NoError(t, d.sync(t.Context()))
	assert.Equal(t, []string{"app.degraded"}, changes())
}

// watched returns a function that returns the types of what the directory changes since the last
// call.
func watched(t *testing.T, d *Directory) func() []string {
	t.Helper()
	w := &watcher{changes: make(chan Change, watchBuffer), tooSlow: make(chan struct{})}
	d.watchers[w] = struct{}{}
	return func() (types []string) {
		for len(w.changes) > 0 {
			c := <-w.changes
			types = append(types, string(c.Type))
		}
		return types
	}
}

func routeEvent(t *testing.T, id string, sequence uint64) Event {
	t.Helper()
	e, err := NewRouteEvent(RouteServing, "/controlplane", id, RouteEvent{Host: "shop.test"}, sequence, noon)
	require.NoError(t, err)
	return e
}
