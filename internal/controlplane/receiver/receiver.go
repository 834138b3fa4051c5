package receiver

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/time/rate"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// MaxPerRunner bounds the receivers of a Runner.
const MaxPerRunner = 1000

// Config is what Receivers need.
type Config struct {
	Store *store.Store
	// LookUp returns an agent that a Runner is granted, or a [problem.Error].
	LookUp func(ctx context.Context, runner, agent string) (announce.Agent, error)
	// Requested is called after looks were requested of agents.
	Requested func()
	// URL returns the address below which Path is, as Git servers should have it.
	URL func() string
	Now func() time.Time
	Log zerolog.Logger
}

// Receivers are the addresses for webhooks of Git servers. Each belongs to a Runner and is for one
// source.
type Receivers struct {
	config  Config
	reading *limit.Shares
	wake    wake.Signal

	mu    sync.Mutex
	looks map[string]*look // by receiver; those that wait, and those of the last minute
}

// look is the last event of a receiver.
type look struct {
	receiver store.Receiver
	waiting  bool // a look is to be requested
	pace     *rate.Limiter
}

// New returns Receivers. Run requests looks.
func New(c Config) *Receivers {
	return &Receivers{config: c, reading: limit.NewShares(maxReading, maxReadingEach), wake: wake.New(), looks: map[string]*look{}}
}

// Set returns the receiver that a Runner has for a source, with a new secret. Only this answer has
// the secret.
func (r *Receivers) Set(ctx context.Context, runner, agent string, source runnerapi.Key) (announce.SourceWebhook, error) {
	granted, err := r.config.LookUp(ctx, runner, agent)
	if err != nil {
		return announce.SourceWebhook{}, err
	}
	if !runnerapi.ValidSource(source) {
		return announce.SourceWebhook{}, problem.Errorf(problem.Invalid, "correct its namespace or name", "%q cannot be a source", printable.Clip(source.String()))
	}
	made := store.Receiver{
		ID: strings.ToLower(rand.Text()), AgentID: granted.ID, Namespace: source.Namespace, Source: source.Name, Runner: runner,
		Secret: webhook.NewSecret(), CreatedAt: r.config.Now().UTC().Truncate(time.Microsecond),
	}
	err = r.config.Store.Update(ctx, func(tx *store.Tx) error {
		before, err := tx.ReceiverOf(ctx, runner, granted.ID, source.Namespace, source.Name)
		switch {
		case err == nil:
			made.ID = before.ID
		case !errors.Is(err, store.ErrNotFound):
			return err
		default:
			n, err := tx.CountReceivers(ctx, runner)
			if err != nil {
				return err
			}
			if n >= MaxPerRunner {
				return problem.Errorf(problem.Conflict, "delete one with `pipeops-runner source webhook delete`", "Runner %s has %d webhooks, which is the most it may have", runner, n)
			}
		}
		return tx.PutReceiver(ctx, made)
	})
	if err != nil {
		return announce.SourceWebhook{}, err
	}
	r.config.Log.Info().Str("runner", runner).Str("agent", granted.ID).Stringer("source", source).Msg("set the webhook of a source")
	shown := r.shown(made)
	shown.Secret = made.Secret
	return shown, nil
}

// Get returns the receiver that a Runner has for a source, without its secret.
func (r *Receivers) Get(ctx context.Context, runner, agent string, source runnerapi.Key) (announce.SourceWebhook, error) {
	granted, err := r.config.LookUp(ctx, runner, agent)
	if err != nil {
		return announce.SourceWebhook{}, err
	}
	found, err := r.config.Store.ReceiverOf(ctx, runner, granted.ID, source.Namespace, source.Name)
	if err != nil {
		return announce.SourceWebhook{}, unlessMissing(err, source)
	}
	return r.shown(found), nil
}

// Delete deletes the receiver that a Runner has for a source.
func (r *Receivers) Delete(ctx context.Context, runner, agent string, source runnerapi.Key) error {
	granted, err := r.config.LookUp(ctx, runner, agent)
	if err != nil {
		return err
	}
	return unlessMissing(r.config.Store.DeleteReceiver(ctx, runner, granted.ID, source.Namespace, source.Name), source)
}

func unlessMissing(err error, source runnerapi.Key) error {
	if errors.Is(err, store.ErrNotFound) {
		return problem.Errorf(problem.NotFound, "make one with `pipeops-runner source webhook set`", "this Runner has no webhook for source %s", source)
	}
	return err
}

func (r *Receivers) shown(from store.Receiver) announce.SourceWebhook {
	return announce.SourceWebhook{
		URL: r.config.URL() + strings.Replace(Path, "{id}", from.ID, 1), CreatedAt: from.CreatedAt,
		CalledAt: from.CalledAt, Event: from.Event, Commit: from.Commit, Waiting: from.Look > 0,
	}
}
