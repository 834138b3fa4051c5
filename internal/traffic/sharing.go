package traffic

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// ShareEvery is how often figures are shared, if they changed. The figures of another replica
	// are at most that old.
	ShareEvery = time.Minute
	// othersKept is how long what others share is used again.
	othersKept = 10 * time.Second
	// maxShares is how many processes are read: those that shared last. Processes that end leave
	// their figures, which count for a day.
	maxShares = 32
	// leaveTimeout bounds sharing for the last time.
	leaveTimeout = 5 * time.Second
)

// Share is what one process shares.
type Share struct {
	Process string
	Number  int64 // how many times the process has shared
	At      time.Time
	Data    []byte
}

// Store keeps shares where all replicas read them.
type Store interface {
	// Put creates a share.
	Put(ctx context.Context, s Share) error
	// List returns all shares.
	List(ctx context.Context) ([]Share, error)
	// Delete deletes a share. One that is gone is no error.
	Delete(ctx context.Context, process string, number int64) error
}

// Sharing shares the figures of this process, and reads those of others.
type Sharing struct {
	Counters *Counters
	Store    Store
	Log      zerolog.Logger

	process string
	number  int64
	shared  time.Time // when a request came last, by what was shared

	mu     sync.Mutex
	others []HostValues
	read   time.Time
}

// NewSharing returns a Sharing, which shares nothing before Run.
func NewSharing(c *Counters, s Store, log zerolog.Logger) *Sharing {
	return &Sharing{Counters: c, Store: s, Log: log, process: strings.ToLower(rand.Text())}
}

// Run shares the figures each minute if they changed, until ctx ends, and then for the last time.
func (s *Sharing) Run(ctx context.Context) error {
	for retry.Wait(ctx, ShareEvery) {
		s.share(ctx)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	s.share(last)
	return nil
}

// share shares the figures if there were requests since it did so last.
func (s *Sharing) share(ctx context.Context) {
	last := s.Counters.Last()
	if !last.After(s.shared) {
		return
	}
	if err := s.Share(ctx); err != nil {
		s.Log.Warn().Err(err).Msg("failed to share the figures of public requests; other replicas leave them out until it succeeds")
		return
	}
	s.shared = last
}

// Share shares the figures now, and deletes what is of no use any more. It must not be called
// concurrently.
func (s *Sharing) Share(ctx context.Context) error {
	data, err := encodeShare(s.Counters.Values())
	if err != nil {
		return err
	}
	now := s.Counters.Now()
	if err := s.Store.Put(ctx, Share{s.process, s.number + 1, now, data}); err != nil {
		return err
	}
	s.number++
	all, err := s.Store.List(ctx)
	if err != nil {
		return err
	}
	used := newest(all, now)
	for _, old := range all {
		if slices.ContainsFunc(used, func(u Share) bool { return u.Process == old.Process && u.Number == old.Number }) {
			continue
		}
		if err := s.Store.Delete(ctx, old.Process, old.Number); err != nil {
			return err
		}
	}
	return nil
}

// newest returns the newest share of each process that shared within the day, for as many as are
// read.
func newest(all []Share, now time.Time) []Share {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b Share) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(b.Number, a.Number)) })
	var used []Share
	for _, s := range all {
		known := slices.ContainsFunc(used, func(u Share) bool { return u.Process == s.Process })
		if !known && len(used) < maxShares && now.Sub(s.At) < time.Duration(Day.Steps)*Day.Step {
			used = append(used, s)
		}
	}
	return used
}

// All returns the figures of this process, and those that others share.
func (s *Sharing) All(ctx context.Context) ([]HostValues, error) {
	others, err := s.Others(ctx)
	return append(s.Counters.Values(), others...), err
}

// Others returns the figures that other processes share.
func (s *Sharing) Others(ctx context.Context) ([]HostValues, error) {
	now := s.Counters.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.read.IsZero() && now.Sub(s.read) < othersKept {
		return s.others, nil
	}
	all, err := s.Store.List(ctx)
	if err != nil {
		return s.others, err
	}
	all = slices.DeleteFunc(all, func(share Share) bool { return share.Process == s.process })
	s.others, s.read = Read(all, now, s.Log), now
	return s.others, nil
}

// Read returns the figures in shares. It leaves out shares that cannot be decoded.
func Read(all []Share, now time.Time, log zerolog.Logger) (hosts []HostValues) {
	for _, share := range newest(all, now) {
		of, err := decodeShare(share.Data)
		if err != nil {
			log.Warn().Err(err).Str("process", share.Process).Msg("ignored shared figures of public requests that cannot be decoded")
			continue
		}
		hosts = append(hosts, of...)
	}
	return hosts
}
