package gateway

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

const (
	// refreshEvery is how often the table is read though no change was heard of, and refreshPause
	// the least time between two reads. They take at most half of the time.
	refreshEvery, refreshPause = 30 * time.Second, 20 * time.Millisecond
	refreshTimeout             = 30 * time.Second
)

// Follower keeps a Table up to date.
type Follower struct {
	Table   *Table
	Metrics *Metrics
	// Refreshed is called after each refresh; it may be nil.
	Refreshed func(context.Context)
	Log       zerolog.Logger

	wake wake.Signal
}

// NewFollower returns a Follower.
func NewFollower(f Follower) *Follower {
	f.wake = wake.New()
	return &f
}

// Look makes the table be read soon: something may have changed.
func (f *Follower) Look() {
	f.wake.Raise()
}

// Run follows until the context ends.
func (f *Follower) Run(ctx context.Context) error {
	for {
		began := time.Now()
		limited, cancel := context.WithTimeout(ctx, refreshTimeout)
		err := f.Table.Refresh(limited)
		cancel()
		if err != nil && ctx.Err() == nil {
			f.Log.Error().Err(err).Msg("failed to read the routes; the gateway keeps those that it has")
		}
		f.Metrics.hosts.Set(float64(f.Table.Len()))
		if f.Refreshed != nil {
			f.Refreshed(ctx)
		}
		retry.Wait(ctx, max(refreshPause, time.Since(began)))
		if !f.wake.WaitFor(ctx, refreshEvery-refreshPause) {
			return nil
		}
	}
}

const (
	// keepEvery is how often the keeper looks for hosts without a certificate.
	keepEvery = time.Minute
	// renewEvery is how often each certificate is looked at, and firstRetry and lastRetry how soon
	// a failed attempt is repeated: CAs limit how many may fail.
	renewEvery            = 12 * time.Hour
	firstRetry, lastRetry = time.Minute, 6 * time.Hour
	// keepTogether is how many certificates are obtained at the same time, and keepEach how many of
	// one agent: an order that fails may take minutes.
	keepTogether, keepEach = 8, 2
)

// Keeper obtains the certificates of hosts before their first visitor comes, and renews them.
type Keeper struct {
	Table *Table
	// Ensure obtains or renews the certificate of a host; Covered reports whether it needs none.
	Ensure  func(ctx context.Context, host string) error
	Covered func(host string) bool
	// Failures keeps why hosts have no new certificate, for all control planes.
	Failures Failures
	Metrics  *Metrics
	Log      zerolog.Logger

	wake  wake.Signal
	known *certificates // nil until they are read
}

// Failures keeps why hosts have no new certificate.
type Failures interface {
	CertificateFailures(context.Context) ([]store.CertificateFailure, error)
	PutCertificateFailure(context.Context, store.CertificateFailure) error
	DeleteCertificateFailure(ctx context.Context, host string) error
}

// maxReason bounds a reason: it has what a CA says.
const maxReason = 300

// certificates is what is known of hosts' certificates.
type certificates struct {
	mu sync.Mutex
	by map[string]kept // by host
}

// kept is what is known of a host's certificate.
type kept struct {
	next   time.Time
	failed int
}

// NewKeeper returns a Keeper.
func NewKeeper(k Keeper) *Keeper {
	k.wake = wake.New()
	return &k
}

// Look makes the keeper look now: there may be new hosts.
func (k *Keeper) Look() {
	k.wake.Raise()
}

// Run keeps certificates until the context ends. It should run in one process at a time.
func (k *Keeper) Run(ctx context.Context) error {
	k.known = nil // another process may have kept them meanwhile
	workers := limit.NewWorkers(keepTogether, keepEach, k.wake.Raise)
	defer workers.Wait()
	for {
		switch err := k.read(ctx); {
		case err != nil:
			k.Log.Error().Err(err).Msg("failed to read the failures of certificates; retrying")
		case k.Table.Known():
			k.pass(ctx, workers)
		}
		if !k.wake.WaitFor(ctx, keepEvery) {
			return nil
		}
	}
}

// read reads which attempts have failed, so that a new leader does not repeat them too soon.
func (k *Keeper) read(ctx context.Context) error {
	if k.known != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	list, err := k.Failures.CertificateFailures(ctx)
	if err != nil {
		return err
	}
	k.known = &certificates{by: make(map[string]kept, len(list))}
	for _, f := range list {
		k.known.by[f.Host] = kept{next: f.NextAt, failed: f.Failures}
	}
	return nil
}

// pass begins to obtain the certificates that are missing or end soon, of each agent as many as its
// share.
func (k *Keeper) pass(ctx context.Context, workers *limit.Workers) {
	now, served := time.Now(), map[string]bool{}
	for _, name := range k.Table.Hosts() {
		host, ok := k.Table.Lookup(name)
		if !ok || strings.HasPrefix(name, "*.") || k.Covered(name) {
			continue
		}
		served[name] = true
		had := k.known.of(name)
		if now.Before(had.next) || ctx.Err() != nil {
			continue
		}
		workers.Try(host.AgentID, name, func() {
			got := k.try(ctx, name, had)
			k.known.put(name, got)
		})
	}
	for _, name := range k.known.gone(served) {
		k.forget(ctx, name)
	}
}

func (c *certificates) of(host string) kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.by[host]
}

func (c *certificates) put(host string, got kept) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.by[host] = got
}

// gone removes the hosts that are served no more, and returns those that have failures.
func (c *certificates) gone(served map[string]bool) (failed []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for host, had := range c.by {
		if served[host] {
			continue
		}
		delete(c.by, host)
		if had.failed > 0 {
			failed = append(failed, host)
		}
	}
	return failed
}

// forget removes the failures of a host. If that fails, the next leader does it.
func (k *Keeper) forget(ctx context.Context, host string) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if err := k.Failures.DeleteCertificateFailure(ctx, host); err != nil && ctx.Err() == nil {
		k.Log.Warn().Err(err).Str("host", host).Msg("failed to clear the failures of the host's certificate")
	}
}

func (k *Keeper) try(ctx context.Context, host string, had kept) kept {
	err := k.Ensure(ctx, host)
	if err == nil {
		k.Metrics.ensured.WithLabelValues("ok").Inc()
		if had.failed > 0 {
			k.forget(ctx, host)
		}
		return kept{next: time.Now().Add(renewEvery - rand.N(renewEvery/4))} //nolint:gosec // spreading load needs no secrecy
	}
	if ctx.Err() != nil {
		return had
	}
	k.Metrics.ensured.WithLabelValues("failed").Inc()
	had.failed++
	pause := min(lastRetry, firstRetry<<min(had.failed-1, 12))
	had.next = time.Now().Add(pause)
	k.Log.Warn().Err(err).Str("host", host).Dur("retryIn", pause).Msg("failed to obtain a certificate for the host")
	k.record(ctx, store.CertificateFailure{
		Host: host, Failures: had.failed, Reason: printable.Shorten(printable.Text(err.Error()), maxReason), NextAt: had.next,
	})
	return had
}

// record keeps a failure for all control planes.
func (k *Keeper) record(ctx context.Context, f store.CertificateFailure) {
	ctx, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if err := k.Failures.PutCertificateFailure(ctx, f); err != nil && ctx.Err() == nil {
		k.Log.Warn().Err(err).Str("host", f.Host).Msg("failed to record why the certificate is missing; lists of routes do not show it")
	}
}
