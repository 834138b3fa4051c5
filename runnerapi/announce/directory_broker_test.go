package announce_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

// truth is a registry that announces what changes in it.
type truth struct {
	t *testing.T
	p *publish.Publisher

	mu     sync.Mutex
	agents map[string]announce.Agent
}

func newTruth(t *testing.T, p *publish.Publisher) *truth {
	return &truth{t: t, p: p, agents: map[string]announce.Agent{}}
}

func (r *truth) snapshot(context.Context) ([]announce.Agent, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]announce.Agent, 0, len(r.agents))
	for _, a := range r.agents {
		list = append(list, a)
	}
	return list, nil
}

// change changes an agent n times; in the end it is removed, or in that state.
func (r *truth) change(runner, id string, n int, end announce.State) {
	r.t.Helper()
	r.mu.Lock()
	var events []announce.Event
	a := r.agents[id]
	a.ID, a.Name = id, id
	for i := range n {
		a.Sequence++
		a.State = announce.StateOnline
		if i%2 == 1 {
			a.State = announce.StateOffline
		}
		kind := announce.AgentUpdated
		if i == n-1 {
			if a.State = end; end == announce.StateRevoked {
				kind = announce.AgentRemoved
			}
		}
		e, err := announce.NewAgentEvent(kind, "/controlplane", a, a.Sequence, time.Now())
		require.NoError(r.t, err)
		e.Runners = []string{runner}
		events = append(events, e)
	}
	if r.agents[id] = a; end == announce.StateRevoked {
		delete(r.agents, id)
	}
	r.mu.Unlock()
	announced(r.t, r.p, events)
}

// is reports whether a directory shows what is true, and nothing else.
func (r *truth) is(d *announce.Directory) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := d.List()
	return len(list) == len(r.agents) && !slices.ContainsFunc(list, func(a announce.Agent) bool {
		want, ok := r.agents[a.ID]
		return !ok || a.State != want.State || a.Sequence != want.Sequence
	})
}

// seen notes what a directory ever showed of agents, from its first complete state on.
func seen(t *testing.T, d *announce.Directory) func() []announce.Change {
	var mu sync.Mutex
	var changes []announce.Change
	run(t, func(ctx context.Context) error {
		if err := d.WaitSynced(ctx); err != nil {
			return context.Canceled
		}
		return d.Watch(ctx, func(c announce.Change) error {
			mu.Lock()
			defer mu.Unlock()
			changes = append(changes, c)
			return nil
		})
	})
	return func() []announce.Change {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(changes)
	}
}

// The Runner returns to more than its queue holds, or to no queue, and shows the current state
// and nothing outdated.
func TestDirectory_AfterAbsence(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	p := publisher(t, config(b, broker.UserControlPlane))
	for name, c := range map[string]struct {
		runner string
		most   int // in the queue
		ends   bool
	}{
		"all is in the queue":  {runner: "away", most: 10_000},
		"the queue overflowed": {runner: "overflowed", most: 50},
		"the queue ended":      {runner: "ended", most: 10_000, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTruth(t, p)
			queue := rabbitmq.RunnerQueue(c.runner)
			queue.MaxLength = c.most
			begin := func() (*announce.Directory, func()) {
				ready := make(chan struct{}, 4)
				d, err := announce.NewDirectory(announce.DirectoryConfig{Snapshot: r.snapshot, Events: &announce.ConsumerConfig{
					Config: config(b, broker.UserRunner), Queue: queue, Ready: func() { ready <- struct{}{} },
				}})
				require.NoError(t, err)
				ctx, cancel := context.WithCancel(context.Background())
				done := make(chan error, 1)
				go func() { done <- d.Run(ctx) }()
				stop := sync.OnceFunc(func() { cancel(); _ = await.Receive(t, done, "the end of the directory") })
				t.Cleanup(stop)
				await.Receive(t, ready, "the queue")
				return d, stop
			}
			first, leave := begin()
			for i := range 5 {
				r.change(queue.Runner, fmt.Sprintf("s%d", i), 2, announce.StateOnline)
			}
			await.Until(t, "the first view", func() bool { return r.is(first) && first.Events().Connected })
			leave()
			// A queue is deleted here and does not expire: an expiry so short that a test can wait
			// for it also ends the queue that the second directory has only just declared.
			if c.ends {
				_, err := broker.Channel(t, b, broker.UserControlPlane).QueueDelete(queue.Name, false, false, false)
				require.NoError(t, err)
			}
			for i := range 5 {
				r.change(queue.Runner, fmt.Sprintf("s%d", i), 400, announce.StateOffline)
			}
			r.change(queue.Runner, "gone", 100, announce.StateRevoked)
			r.change(queue.Runner, "s0", 1, announce.StateRevoked)
			second, _ := begin()
			changes := seen(t, second)
			await.Until(t, "the truth", func() bool { return r.is(second) && len(changes()) >= 4 })
			// What comes now is behind all that waited.
			r.change(queue.Runner, "s1", 1, announce.StateOnline)
			await.Until(t, "what comes now", func() bool { return r.is(second) && len(changes()) > 4 })
			for _, ch := range changes() {
				if ch.Agent.ID == "gone" || ch.Agent.ID == "s0" || ch.Agent.State == announce.StateOnline && ch.Agent.ID != "s1" {
					t.Errorf("showed what was over: %s %s %s %d", ch.Type, ch.Agent.ID, ch.Agent.State, ch.Agent.Sequence)
				}
			}
		})
	}
}
