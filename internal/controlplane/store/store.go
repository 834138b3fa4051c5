// Package store keeps what the control plane must not forget: tokens, agents,
// Runners, announcements that are still to go out, and the timeline. It holds no
// rules: what may change how is the registry's.
//
// It is kept in SQLite or in PostgreSQL, by the same SQL and under the same rule:
// there is one writer at a time (docs/adr/0026-postgresql.md).
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// ErrNotFound is the answer to a question for one row that is not there.
var ErrNotFound = errors.New("not found")

// Store is an open database. It may be used by several goroutines, and the same
// database by several processes.
type Store struct {
	queries
	engine engine
	queued chan struct{}
	// Observed hears of each transaction, for metrics: how long it took, the wait for others
	// included, and whether the database failed. It may be nil; it is set before use.
	Observed func(took time.Duration, failed bool)
}

// engine is what SQLite and PostgreSQL do each in its own way.
type engine interface {
	// begin starts a transaction beside which no other writes, in this process or
	// another. Its queries are what runs in it.
	// Others are not told of what was changed quietly.
	begin(ctx context.Context, quietly bool) (transaction, queries, error)
	// quiet are for single statements about what is the caller's own: they wait for no
	// other writer, and nobody is told.
	quiet() queries
	// clock is the database's, in an expression: microseconds since 1970.
	clock() string
	// serve claims the database for the one control plane that serves it, or for one
	// of those that serve it side by side.
	serve(ctx context.Context, beside bool) error
	// lead runs lead while no other process does, until the context ends.
	lead(ctx context.Context, lead func(context.Context)) error
	// watch calls changed, at most once in that time, after another process wrote.
	watch(ctx context.Context, every time.Duration, changed func()) error
	close() error
}

type transaction interface {
	Commit() error
	Rollback() error
}

// Tx is a transaction: all of it happens or nothing.
type Tx struct {
	queries
	queued bool
}

// queries are the statements, which run in a transaction or outside of one.
type queries struct{ q querier }

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Close closes the database.
func (s *Store) Close() error { return s.engine.close() }

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.q.QueryRowContext(ctx, "SELECT 1 FROM settings UNION SELECT 1").Scan(&one)
}

// Serve claims the database for the one control plane that serves it, until Close.
// It fails if another has. Whoever administers it needs no claim.
func (s *Store) Serve(ctx context.Context) error { return s.engine.serve(ctx, false) }

// ServeBeside claims the database for one of several control planes. It fails if one
// has it for itself alone.
func (s *Store) ServeBeside(ctx context.Context) error { return s.engine.serve(ctx, true) }

// Lead runs lead whenever no other process leads, until the context ends. The context
// that lead gets ends when that cannot be sure any more; others may lead when it has
// returned, or a few seconds after it should have known.
func (s *Store) Lead(ctx context.Context, lead func(context.Context)) error {
	return s.engine.lead(ctx, lead)
}

func (s *Store) quiet() queries { return s.engine.quiet() }

// Watch calls changed after another process changed the database, until the
// context ends.
func (s *Store) Watch(ctx context.Context, every time.Duration, changed func()) error {
	return s.engine.watch(ctx, every, func() {
		changed()
		s.wake()
	})
}

// Update runs change in a transaction, beside which no other writes: what it reads
// stays true until it is done. An error undoes all of it.
func (s *Store) Update(ctx context.Context, change func(*Tx) error) (err error) {
	return s.update(ctx, false, change)
}

// UpdateQuietly is Update for what no other process waits for: none is told of it.
func (s *Store) UpdateQuietly(ctx context.Context, change func(*Tx) error) (err error) {
	return s.update(ctx, true, change)
}

func (s *Store) update(ctx context.Context, quietly bool, change func(*Tx) error) (err error) {
	broken := false
	defer s.observe(time.Now(), &broken)
	tx, in, err := s.engine.begin(ctx, quietly)
	if err != nil {
		broken = ctx.Err() == nil
		return fmt.Errorf("database: %w", err)
	}
	committed := false
	defer func() {
		if !committed { // an error, or a panic
			err = errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}()
	t := &Tx{queries: in}
	if err := change(t); err != nil {
		return err
	}
	committed = true
	if err := tx.Commit(); err != nil {
		broken = ctx.Err() == nil
		return fmt.Errorf("database: commit: %w", err)
	}
	if t.queued {
		s.wake()
	}
	return nil
}

func (s *Store) observe(start time.Time, broken *bool) {
	if s.Observed != nil {
		s.Observed(time.Since(start), *broken)
	}
}

func ignoreDone(err error) error {
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// Queued gets a value after a commit that added to the outbox.
func (s *Store) Queued() <-chan struct{} { return s.queued }

func (s *Store) wake() {
	select {
	case s.queued <- struct{}{}:
	default: // one is waiting already
	}
}
