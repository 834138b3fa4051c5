package announce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

const (
	// refreshEvery is how often a directory is compared with the control plane although it receives
	// all events. refreshAlone applies while it receives none, because there is no broker or
	// another consumer has its queue.
	refreshEvery = 5 * time.Minute
	refreshAlone = 15 * time.Second
	// refreshPause keeps a series of gaps from causing a series of snapshots.
	refreshPause = time.Second
)

// ErrUnknownAgent is returned for an agent that the directory does not know.
var ErrUnknownAgent = errors.New("unknown agent")

// AmbiguousError is returned for a name that several agents share.
type AmbiguousError struct {
	Name string
	IDs  []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("agent name %q is not unique: use one of the IDs %s", e.Name, strings.Join(e.IDs, ", "))
}

// DirectoryConfig configures a Directory.
type DirectoryConfig struct {
	// Snapshot returns all current agents, as [SnapshotClient.Agents] does.
	Snapshot func(context.Context) ([]Agent, error)
	// Timeline returns events of an agent, as [SnapshotClient.Timeline] does. With it, watchers
	// also get the events that the queue did not bring: a transient queue lost them, or there is
	// none.
	Timeline func(ctx context.Context, agentID string, q TimelineQuery) (TimelinePage, error)
	// Events is the queue of changes. Nil means that only snapshots are used.
	Events *ConsumerConfig
	Log    zerolog.Logger
}

// Directory is a Runner's view of all agents, in memory. It is as fresh as the last event, and
// requests a snapshot after missed events. While the broker or the control plane is away it keeps
// what it has.
type Directory struct {
	snapshot func(context.Context) ([]Agent, error)
	timeline func(context.Context, string, TimelineQuery) (TimelinePage, error)
	consumer *Consumer
	log      zerolog.Logger
	wanted   wake.Signal   // requests a snapshot; holds at most one request
	synced   chan struct{} // closed after the first snapshot

	mu      sync.Mutex
	entries map[string]entry
	// heard is the sequence of the last handled event of each agent. A snapshot does not raise it,
	// because a snapshot has agents alone.
	heard map[string]uint64
	// removed holds the sequence number of removed agents, to reject late events, until a snapshot
	// has confirmed the removal.
	removed map[string]entry
	// asOf is when the last snapshot was requested. An agent that it does not list did not exist
	// then, even if older announcements mention it.
	asOf     time.Time
	clock    uint64 // counts changes
	watchers map[*watcher]struct{}
}

// entry is an agent and the time of its last change, by the directory's own clock.
type entry struct {
	agent   Agent
	touched uint64
}

// NewDirectory returns a directory after it has checked the configuration. The directory is empty
// until Run runs.
func NewDirectory(cfg DirectoryConfig) (*Directory, error) {
	if cfg.Snapshot == nil {
		return nil, errors.New("directory: no snapshot function was given")
	}
	d := &Directory{
		snapshot: cfg.Snapshot,
		timeline: cfg.Timeline,
		log:      cfg.Log,
		wanted:   make(chan struct{}, 1),
		synced:   make(chan struct{}),
		entries:  map[string]entry{},
		heard:    map[string]uint64{},
		removed:  map[string]entry{},
		watchers: map[*watcher]struct{}{},
	}
	if cfg.Events != nil {
		events := *cfg.Events
		ready := events.Ready
		events.Ready = func() {
			d.Refresh() // for what happened before the queue was bound
			if ready != nil {
				ready()
			}
		}
		var err error
		if d.consumer, err = NewConsumer(events); err != nil {
			return nil, fmt.Errorf("directory: %w", err)
		}
	}
	return d, nil
}

// Run maintains the directory until the context ends, and returns the context's cause.
func (d *Directory) Run(ctx context.Context) error {
	var consuming sync.WaitGroup
	defer consuming.Wait()
	wait := rabbitmq.NewBackoff()
	for ctx.Err() == nil {
		err := d.sync(ctx)
		if err != nil {
			pause := wait.NextBackOff()
			d.log.Warn().Err(err).Dur("retry_in", pause).Msg("failed to take a snapshot of the agents")
			retry.Wait(ctx, pause)
			continue
		}
		wait.Reset()
		// Events from before the first snapshot are outdated, so consumption starts after it.
		if d.firstSync() && d.consumer != nil {
			consuming.Go(func() { _ = d.consumer.Run(ctx, d.Handle) }) // ends with ctx only
		}
		retry.Wait(ctx, refreshPause)
		d.idle(ctx)
	}
	return context.Cause(ctx)
}

// idle waits until a snapshot is due or requested. It computes again and again when one is due: the
// events may stop while it waits.
func (d *Directory) idle(ctx context.Context) {
	began := time.Now()
	tick := time.NewTicker(refreshAlone)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.wanted:
			return
		case <-tick.C:
			if time.Since(began) >= d.refreshInterval() {
				return
			}
		}
	}
}

func (d *Directory) refreshInterval() time.Duration {
	if d.consumer == nil {
		return refreshAlone
	}
	if s := d.consumer.Status(); !s.Connected || s.Standby {
		return refreshAlone
	}
	return refreshEvery
}

// Refresh requests a snapshot soon. Many calls at once result in one snapshot.
func (d *Directory) Refresh() {
	d.wanted.Raise()
}

func (d *Directory) firstSync() bool {
	select {
	case <-d.synced:
		return false
	default:
		close(d.synced)
		return true
	}
}

// Synced reports whether the directory has been complete once.
func (d *Directory) Synced() bool {
	select {
	case <-d.synced:
		return true
	default:
		return false
	}
}

// WaitSynced waits until the directory has been complete once.
func (d *Directory) WaitSynced(ctx context.Context) error {
	select {
	case <-d.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no snapshot of the agents came from the control plane: %w", context.Cause(ctx))
	}
}

// Events returns the state of the connection to the broker.
func (d *Directory) Events() rabbitmq.Status {
	if d.consumer == nil {
		return rabbitmq.Status{Err: errors.New("no broker is configured")}
	}
	return d.consumer.Status()
}

// List returns all agents, ordered by name and then by ID.
func (d *Directory) List() []Agent {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list()
}

func (d *Directory) list() []Agent {
	agents := make([]Agent, 0, len(d.entries))
	for e := range maps.Values(d.entries) {
		agents = append(agents, e.agent)
	}
	slices.SortFunc(agents, func(a, b Agent) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID))
	})
	return agents
}

// Get returns an agent by its ID, or by its name if only one agent has it.
func (d *Directory) Get(idOrName string) (Agent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[idOrName]; ok {
		return e.agent, nil
	}
	return findAgent(d.list(), idOrName)
}

// findAgent returns an agent of a list by its ID, or by its name if only one agent has it.
func findAgent(agents []Agent, idOrName string) (Agent, error) {
	var named []Agent
	for _, a := range agents {
		if a.ID == idOrName {
			return a, nil
		}
		if a.Name == idOrName {
			named = append(named, a)
		}
	}
	switch len(named) {
	case 0:
		return Agent{}, fmt.Errorf("%w %q", ErrUnknownAgent, printable.Clip(idOrName))
	case 1:
		return named[0], nil
	}
	ambiguous := &AmbiguousError{Name: idOrName}
	for _, a := range named {
		ambiguous.IDs = append(ambiguous.IDs, a.ID)
	}
	return Agent{}, ambiguous
}
