package audit

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

const (
	// queueLength is how many records may wait to be stored, which covers a short outage of the
	// cluster. Further records are only counted.
	queueLength = 1024
	// gather is how long a record waits for others that are stored together with it.
	gather = 100 * time.Millisecond
	// writeTimeout bounds one write, flushTimeout all remaining writes at the end.
	writeTimeout, flushTimeout = 10 * time.Second, 5 * time.Second
	retryMin, retryMax         = 100 * time.Millisecond, 10 * time.Second
	// sweepEvery is after how many batches old ones are removed.
	sweepEvery = 64
)

// Log is one replica's end of the audit log. It implements backend.Auditor.
type Log struct {
	store   Store
	replica string
	log     zerolog.Logger
	queue   chan entry
	lost    atomic.Int64 // not yet reported in the log
	dropped atomic.Int64 // since the start
	grown   wake.Signal
	hurry   wake.Signal // a caller waits for its record

	// Only Run uses these.
	head    runnerapi.AuditHead
	known   bool
	written int
	tried   *attempt // its answer did not arrive
}

// entry is a record that is to be stored.
type entry struct {
	record runnerapi.AuditRecord
	// kept is closed once the record is stored; gone is closed once the caller no longer waits for
	// that. Both are nil if no caller waits.
	kept chan<- struct{}
	gone <-chan struct{}
}

// attempt is a write that may have been carried out.
type attempt struct {
	first int64
	text  []byte
	head  runnerapi.AuditHead
}

var _ backend.Auditor = (*Log)(nil)

// New returns a log in that store, which that replica writes once Run is called.
func New(store Store, replica string, log zerolog.Logger) *Log {
	return &Log{
		store: store, replica: replica, log: log,
		queue: make(chan entry, queueLength), grown: wake.New(), hurry: wake.New(),
	}
}

// Record implements backend.Auditor.
func (l *Log) Record(r runnerapi.AuditRecord) {
	r.Replica = l.replica
	select {
	case l.queue <- entry{record: r}:
	default:
		l.lost.Add(1)
		l.dropped.Add(1)
	}
}

// Keep implements backend.Auditor. If the caller stops waiting, the record is stored only if its
// turn has come by then.
func (l *Log) Keep(ctx context.Context, r runnerapi.AuditRecord) error {
	r.Replica = l.replica
	kept := make(chan struct{})
	select {
	case l.queue <- entry{r, kept, ctx.Done()}:
	default:
		return fmt.Errorf("%d records wait to be kept already", queueLength)
	}
	l.hurry.Raise() // a store that could not be written is tried now
	select {
	case <-kept:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the record was not kept in time: %w", ctx.Err())
	}
}

// Waiting returns how many records are still to be stored.
func (l *Log) Waiting() int { return len(l.queue) }

// Lost returns how many records could not be stored since the start.
func (l *Log) Lost() int64 { return l.dropped.Load() }

// Grown returns a channel that gets a value after records were stored.
func (l *Log) Grown() <-chan struct{} { return l.grown }

// Run stores records until ctx ends, and then those that wait.
func (l *Log) Run(ctx context.Context) error {
	for {
		select {
		case e := <-l.queue:
			l.keep(ctx, l.gather(ctx, e))
		case <-ctx.Done():
			l.flush(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// gather waits a moment for records that can be stored together, unless a caller waits for one.
func (l *Log) gather(ctx context.Context, first entry) []entry {
	all := []entry{first}
	timer := time.NewTimer(gather)
	defer timer.Stop()
	for len(all) < maxBatch {
		if all[len(all)-1].kept != nil {
			return l.waiting(all)
		}
		select {
		case e := <-l.queue:
			all = append(all, e)
		case <-timer.C:
			return all
		case <-ctx.Done():
			return l.waiting(all)
		}
	}
	return all
}

// waiting adds the records that already wait.
func (l *Log) waiting(all []entry) []entry {
	for len(l.queue) > 0 && len(all) < maxBatch {
		all = append(all, <-l.queue)
	}
	return all
}

func (l *Log) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	for len(l.queue) > 0 && ctx.Err() == nil {
		l.keep(ctx, l.waiting(nil))
	}
}

// keep writes records until it succeeds. If ctx ends before that, there is one last try.
func (l *Log) keep(ctx context.Context, entries []entry) {
	entries = slices.DeleteFunc(entries, entry.given)
	if len(entries) == 0 {
		return
	}
	all := make([]runnerapi.AuditRecord, 0, len(entries))
	for _, e := range entries {
		all = append(all, e.record)
	}
	lost := l.lost.Swap(0)
	all[0].Lost = lost
	for waits := retry.Backoff(retryMin, retryMax); ; {
		last := ctx.Err() != nil
		err := l.write(context.WithoutCancel(ctx), all)
		if err == nil {
			break
		}
		l.known = false
		if last {
			l.tried = nil // or the next records would be taken for these
			l.lost.Add(lost + int64(len(all)))
			l.dropped.Add(int64(len(all)))
			l.log.Error().Err(err).Int("records", len(all)).Msg("failed to write the audit log before exit: records are lost")
			return
		}
		l.log.Warn().Err(err).Stringer("store", l.store).Msg("failed to write the audit log; retrying")
		select {
		case <-ctx.Done():
		case <-l.hurry:
		case <-time.After(waits.NextBackOff()):
		}
	}
	for _, e := range entries {
		if e.kept != nil {
			close(e.kept)
		}
	}
	if l.written++; l.written%sweepEvery == 1 {
		if err := l.sweep(context.WithoutCancel(ctx)); err != nil {
			l.log.Warn().Err(err).Msg("failed to remove old audit records; retrying later")
		}
	}
	l.grown.Raise()
}

// given reports whether the entry's caller gave it up.
func (e entry) given() bool {
	select {
	case <-e.gone: // nil blocks
		return true
	default:
		return false
	}
}

// write appends a batch to the last one, of any replica.
func (l *Log) write(ctx context.Context, all []runnerapi.AuditRecord) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	for {
		if done, err := l.carriedOut(ctx); done || err != nil {
			return err
		}
		if !l.known {
			head, err := Head(ctx, l.store)
			if err != nil {
				return err
			}
			l.head, l.known = head, true
		}
		b, text, err := link(l.head, all)
		if err != nil {
			return err
		}
		l.tried = &attempt{b.first.Seq, text, b.head}
		put, err := l.store.Put(ctx, b.first.Seq, text)
		if err != nil {
			return err
		}
		if put {
			l.head, l.tried = b.head, nil
			return nil
		}
		// Another replica was first, or this one was and got no answer.
		if l.known, err = l.catchUp(ctx); err != nil {
			return err
		}
	}
}

// catchUp moves past the batch that another replica has written where this one meant to. It returns
// false if that batch is invalid: then the end is searched for.
func (l *Log) catchUp(ctx context.Context) (bool, error) {
	b, err := get(ctx, l.store, l.head.Seq+1)
	if err != nil || len(b.lines) == 0 || b.first.Prev != l.head.Hash {
		return false, err
	}
	l.head = b.head
	return true, nil
}

// carriedOut reports whether a write without an answer was carried out: its records must not be
// written twice.
func (l *Log) carriedOut(ctx context.Context) (bool, error) {
	if l.tried == nil {
		return false, nil
	}
	have, err := l.store.Get(ctx, l.tried.first)
	if err != nil {
		return false, err
	}
	done := bytes.Equal(have, l.tried.text)
	if done {
		l.head, l.known = l.tried.head, true
	}
	l.tried = nil
	return done, nil
}

// sweep removes the oldest batches beyond the number that the store keeps.
func (l *Log) sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	all, err := l.store.List(ctx)
	if err != nil {
		return err
	}
	for _, first := range all[:max(0, len(all)-l.store.Most())] {
		if err := l.store.Delete(ctx, first); err != nil {
			return err
		}
	}
	return nil
}
