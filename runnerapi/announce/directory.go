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

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// refreshEvery is how often a directory is compared with the control plane
	// although it hears all events; refreshAlone is how often while it hears none, for
	// want of a broker or because another reads its queue.
	refreshEvery = 5 * time.Minute
	refreshAlone = 15 * time.Second
	// refreshPause keeps a stream of gaps from becoming a stream of snapshots.
	refreshPause = time.Second
)

// ErrUnknownAgent is returned for an agent that the directory does not know.
var ErrUnknownAgent = errors.New("unknown agent")

// AmbiguousError is returned for a name that several agents have.
type AmbiguousError struct {
	Name string
	IDs  []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("agent name %q is not unique: use one of the IDs %s", e.Name, strings.Join(e.IDs, ", "))
}

// DirectoryConfig says what a directory is fed with.
type DirectoryConfig struct {
	// Snapshot returns all agents as of now, as [SnapshotClient.Agents] does.
	Snapshot func(context.Context) ([]Agent, error)
	// Events is the queue to hear changes from. Nil means snapshots alone.
	Events *ConsumerConfig
	Log    zerolog.Logger
}

// Directory is a Runner's view of all agents, in memory. It is as fresh as the
// last event; where events were missed it asks for a snapshot. It goes on with
// what it knows while the broker or the control plane is away.
type Directory struct {
	snapshot func(context.Context) ([]Agent, error)
	consumer *Consumer
	log      zerolog.Logger
	wanted   chan struct{} // a snapshot is wanted; holds at most one wish
	synced   chan struct{} // closed after the first snapshot

	mu      sync.Mutex
	entries map[string]entry
	// removed remembers the sequence of removed agents, against late events, until
	// a snapshot has confirmed the removal.
	removed map[string]entry
	// asOf is when the last snapshot was asked for: an agent that is not in it was not
	// there, whatever older announcements say.
	asOf     time.Time
	clock    uint64 // counts changes
	watchers map[*watcher]struct{}
}

// entry is an agent and when, by the directory's own clock, it last changed.
type entry struct {
	agent   Agent
	touched uint64
}

// NewDirectory checks the configuration. It is empty until Run runs.
func NewDirectory(cfg DirectoryConfig) (*Directory, error) {
	if cfg.Snapshot == nil {
		return nil, errors.New("directory: no snapshot function was given")
	}
	d := &Directory{
		snapshot: cfg.Snapshot,
		log:      cfg.Log,
		wanted:   make(chan struct{}, 1),
		synced:   make(chan struct{}),
		entries:  map[string]entry{},
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

// Run keeps the directory until the context ends, and returns its cause.
func (d *Directory) Run(ctx context.Context) error {
	var consuming sync.WaitGroup
	defer consuming.Wait()
	wait := newBackoff()
	for ctx.Err() == nil {
		err := d.sync(ctx)
		if err != nil {
			pause := wait.NextBackOff()
			d.log.Warn().Err(err).Dur("retry_in", pause).Msg("no snapshot of the agents")
			retry.Wait(ctx, pause)
			continue
		}
		wait.Reset()
		// Events of a time before the first snapshot would only show what is long
		// over, so nothing is consumed before it.
		if d.firstSync() && d.consumer != nil {
			consuming.Go(func() { _ = d.consumer.Run(ctx, d.Handle) }) // ends with ctx only
		}
		retry.Wait(ctx, refreshPause)
		d.idle(ctx)
	}
	return context.Cause(ctx)
}

// idle waits until a snapshot is due or wanted. When it is due is asked again and again: what
// is heard may end while it waits.
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

// Refresh asks for a snapshot soon. Many calls at once make one.
func (d *Directory) Refresh() {
	select {
	case d.wanted <- struct{}{}:
	default:
	}
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

// Synced tells whether the directory has been complete once.
func (d *Directory) Synced() bool {
	select {
	case <-d.synced:
		return true
	default:
		return false
	}
}

// WaitSynced returns when the directory has been complete once.
func (d *Directory) WaitSynced(ctx context.Context) error {
	select {
	case <-d.synced:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("no snapshot of the agents came from the control plane: %w", context.Cause(ctx))
	}
}

// Events tells how the connection to the broker stands.
func (d *Directory) Events() Status {
	if d.consumer == nil {
		return Status{Err: errors.New("no broker is configured")}
	}
	return d.consumer.Status()
}

// List returns all agents by name, then ID.
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

// Get finds an agent by its ID, or by its name if only one has it.
func (d *Directory) Get(idOrName string) (Agent, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e, ok := d.entries[idOrName]; ok {
		return e.agent, nil
	}
	return findAgent(d.list(), idOrName)
}

// findAgent finds an agent in a list by its ID, or by its name if only one has it.
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
		return Agent{}, fmt.Errorf("%w %q", ErrUnknownAgent, clip(idOrName))
	case 1:
		return named[0], nil
	}
	ambiguous := &AmbiguousError{Name: idOrName}
	for _, a := range named {
		ambiguous.IDs = append(ambiguous.IDs, a.ID)
	}
	return Agent{}, ambiguous
}
