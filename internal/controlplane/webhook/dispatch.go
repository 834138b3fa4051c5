package webhook

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// MaxPending is how many events may wait for one webhook; then those that have
	// waited longest are given up.
	MaxPending = 10_000
	// KeepDone is how many delivered and given-up deliveries are kept for inspection.
	KeepDone = 1000
	// trimEvery is how many deliveries may be done with until old ones are dropped.
	trimEvery = 100

	// lanesAtATime is how many agents' events one webhook is sent side by side.
	lanesAtATime = 4
	// lookPause gathers what makes us look: many events are one look.
	lookPause = 50 * time.Millisecond
	// troublePause is the wait after the database failed.
	troublePause    = time.Second
	databaseTimeout = 10 * time.Second

	firstRetry   = 5 * time.Second
	longestRetry = time.Hour
	// giveUpAfter is how long an event is tried that a receiver does not take.
	giveUpAfter = 3 * 24 * time.Hour
)

// Dispatcher sends waiting deliveries. Only one process may run it at a time: two would send
// everything twice.
type Dispatcher struct {
	store   *store.Store
	options Options
	log     zerolog.Logger
	now     func() time.Time
	wake    wake.Signal // raised when deliveries are queued

	firstRetry time.Duration
}

// NewDispatcher returns a Dispatcher; Run runs it.
func NewDispatcher(s *store.Store, o Options, log zerolog.Logger) *Dispatcher {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.agentName = func(ctx context.Context, id string) string {
		agent, _ := s.Agent(ctx, id) // a deleted agent has its ID
		return agent.Name
	}
	return &Dispatcher{
		store: s, options: o, log: log.With().Str("part", "webhooks").Logger(), now: o.Now, wake: s.Due,
		firstRetry: firstRetry,
	}
}

// Queue queues an event for the webhooks that want it, in the event's own transaction.
func Queue(ctx context.Context, tx *store.Tx, e announce.Event, now time.Time) error {
	return queueUpTo(ctx, tx, e, now, MaxPending)
}

func queueUpTo(ctx context.Context, tx *store.Tx, e announce.Event, now time.Time, most int) error {
	hooks, err := tx.Webhooks(ctx)
	if err != nil || len(hooks) == 0 {
		return err
	}
	body, err := e.Encode()
	if err != nil {
		return err
	}
	for _, hook := range hooks {
		wanted, err := wants(hook, e.Type, func() (map[string]string, error) { return labels(ctx, tx, e) })
		if err != nil {
			return err
		}
		if !wanted {
			continue
		}
		err = tx.QueueDelivery(ctx, store.Delivery{
			Webhook: hook.Name, EventID: e.ID, AgentID: e.AgentID, Sequence: e.Sequence, Type: string(e.Type), Body: string(body), CreatedAt: now,
		}, most)
		if err != nil {
			return err
		}
	}
	return nil
}

// labels returns an agent's labels as the event contains them, or the current ones.
func labels(ctx context.Context, tx *store.Tx, e announce.Event) (map[string]string, error) {
	if e.Type.IsAgent() {
		agent, err := e.Agent()
		return agent.Labels, err
	}
	agent, err := tx.Agent(ctx, e.AgentID)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return agent.Labels, err
}

// Look makes Run check the database soon, for events and for changed webhooks.
func (d *Dispatcher) Look() {
	d.wake.Raise()
}

// Run sends until the context ends. Each webhook has its own queue, so that none waits for
// another's receiver.
func (d *Dispatcher) Run(ctx context.Context) error {
	queues := map[string]*queue{}
	defer func() {
		for _, q := range queues {
			q.end()
		}
	}()
	for {
		if err := d.reconcile(ctx, queues); err != nil && ctx.Err() == nil {
			d.log.Error().Err(err).Msg("failed to read the webhooks; retrying")
			d.Look()
			retry.Wait(ctx, troublePause)
		}
		if !d.wake.Wait(ctx) {
			return nil
		}
		retry.Wait(ctx, lookPause)
	}
}

// reconcile makes the queues those of the webhooks that there are, and has each look.
func (d *Dispatcher) reconcile(ctx context.Context, queues map[string]*queue) error {
	reading, cancel := context.WithTimeout(ctx, databaseTimeout)
	defer cancel()
	hooks, err := d.store.Webhooks(reading)
	if err != nil {
		return err
	}
	there := map[string]store.Webhook{}
	for _, hook := range hooks {
		if hook.Enabled() {
			there[hook.Name] = hook
		}
	}
	for name, q := range queues {
		if hook, ok := there[name]; !ok || !same(hook, q.hook) {
			q.end() // before the next begins: order is kept
			delete(queues, name)
		}
	}
	for name, hook := range there {
		if q, ok := queues[name]; ok {
			q.look()
			continue
		}
		queues[name] = d.begin(ctx, hook)
	}
	return nil
}

// same reports whether two are sent to in the same way. Whom they are for does not matter here:
// that was decided when an event was queued.
func same(a, b store.Webhook) bool {
	return a.URL == b.URL && a.Format == b.Format && a.AllowHTTP == b.AllowHTTP && a.AllowPrivate == b.AllowPrivate &&
		a.Secret == b.Secret && a.Previous == b.Previous && a.PreviousUntil.Equal(b.PreviousUntil) && a.CreatedAt.Equal(b.CreatedAt)
}

// begin starts a webhook's queue.
func (d *Dispatcher) begin(ctx context.Context, hook store.Webhook) *queue {
	ctx, cancel := context.WithCancel(ctx)
	q := &queue{
		Dispatcher: d, hook: hook, sender: NewSender(hook, d.options), log: d.log.With().Str("webhook", hook.Name).Logger(),
		wake: wake.New(), ended: make(chan string, lanesAtATime), busy: map[string]bool{}, cancel: cancel,
	}
	q.running = sync.WaitGroup{}
	q.running.Go(func() { q.run(ctx) })
	return q
}
