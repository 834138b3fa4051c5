// Package store keeps the control plane's durable data: tokens, agents, Runners, announcements that
// are still to be sent, and the timeline. It contains no rules: the registry decides about changes.
//
// The data is in SQLite or in PostgreSQL, with the same SQL and under the same rule: there is one
// writer at a time (docs/adr/0026-postgresql.md).
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// ErrNotFound is returned by a query for one row that does not exist.
var ErrNotFound = errors.New("not found")

// Timeout bounds work in the background that waits for the database.
const Timeout = 10 * time.Second

// Store is an open database. It is safe for concurrent use by goroutines, and the database by
// processes.
type Store struct {
	queries
	engine engine
	queued wake.Signal
	// Due is raised after a commit that queued deliveries to webhooks.
	Due wake.Signal
	dry bool // transactions are rolled back
	// Observed is called after each transaction, for metrics: how long it took, including the wait
	// for others, and whether the database failed. It may be nil; set it before use.
	Observed func(took time.Duration, failed bool)
}

// engine is what differs between SQLite and PostgreSQL.
type engine interface {
	// begin starts a transaction without other writers, in this process or another. The returned
	// queries run in it. Other processes are not notified of quiet changes.
	begin(ctx context.Context, quietly bool) (transaction, queries, error)
	// quiet returns queries for single statements about the caller's own data. They do not wait for
	// other writers and notify no process.
	quiet() queries
	// clock returns an SQL expression for the database's time: microseconds since 1970.
	clock() string
	// serve claims the database for one control plane alone or, with beside, for one of several.
	serve(ctx context.Context, beside bool) error
	// lead runs lead while no other process does, until the context ends.
	lead(ctx context.Context, lead func(context.Context)) error
	// watch calls changed after another process wrote, at most once per interval.
	watch(ctx context.Context, every time.Duration, changed func()) error
	// beside returns an engine on the same connections whose changes watch reports as those of
	// another process, and its queries outside of transactions. Its close leaves the connections
	// open.
	beside() (engine, queries)
	close() error
}

type transaction interface {
	Commit() error
	Rollback() error
}

// Tx is a transaction: all of it happens or nothing.
type Tx struct {
	queries
	queued, due bool
}

// queries are the statements, which run in a transaction or outside of one. Each group of tables
// has its own.
type queries struct {
	table
	actingTable
	agentTable
	auditTable
	authorityTable
	certificateTable
	consoleTable
	enrolmentTable
	eventTable
	exchangedTable
	gatewayTable
	hostTable
	refreshTable
	peerTable
	portTable
	operatorTable
	operatorAuditTable
	operatorChangeTable
	outboxTable
	receiverTable
	releaseTable
	routeTable
	runnerTable
	timelineTable
	tokenTable
	trustTable
	visitorTable
	webhookTable
}

// table is where statements run.
type table struct{ q querier }

func newQueries(q querier) queries {
	t := table{q}
	return queries{
		t, actingTable{t}, agentTable{t}, auditTable{t}, authorityTable{t}, certificateTable{t}, consoleTable{t}, enrolmentTable{t}, eventTable{t}, exchangedTable{t}, gatewayTable{t}, hostTable{t}, refreshTable{t},
		peerTable{t}, portTable{t}, operatorTable{t}, operatorAuditTable{t}, operatorChangeTable{t}, outboxTable{t}, receiverTable{t}, releaseTable{t}, routeTable{t}, runnerTable{t}, timelineTable{t}, tokenTable{t}, trustTable{t}, visitorTable{t}, webhookTable{t},
	}
}

type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// Close closes the database.
func (s *Store) Close() error { return s.engine.close() }

// Beside returns the same database for another part of this process. Watch reports what that
// changes, as it does for another process. Close both.
func (s *Store) Beside() *Store {
	other := *s
	other.engine, other.queries = s.engine.beside()
	return &other
}

// Ping reports whether the database responds.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.q.QueryRowContext(ctx, "SELECT 1 FROM settings UNION SELECT 1").Scan(&one)
}

// Serve claims the database for the only control plane that serves it, until Close. It fails if
// another one has claimed it. The operator's commands need no claim.
func (s *Store) Serve(ctx context.Context) error { return s.engine.serve(ctx, false) }

// ServeBeside claims the database for one of several control planes. It fails if one has claimed it
// for itself alone.
func (s *Store) ServeBeside(ctx context.Context) error { return s.engine.serve(ctx, true) }

// Lead runs lead whenever no other process leads, until the context ends. The context that lead
// gets ends when the leadership is no longer certain. Others may lead once lead has returned, or a
// few seconds after its context should have ended.
func (s *Store) Lead(ctx context.Context, lead func(context.Context)) error {
	return s.engine.lead(ctx, lead)
}

// DryRun returns the same database for trying a change: Update rolls back what succeeds, too. What
// is written outside of a transaction is written.
func (s *Store) DryRun() *Store {
	dry := *s
	dry.dry = true
	return &dry
}

func (s *Store) quiet() queries { return s.engine.quiet() }

// Watch calls changed after another process changed the database, until the context ends.
func (s *Store) Watch(ctx context.Context, every time.Duration, changed func()) error {
	return s.engine.watch(ctx, every, func() {
		changed()
		s.queued.Raise()
	})
}

// Update runs change in a transaction without other writers: what it reads stays true until it is
// done. An error rolls back all of it.
func (s *Store) Update(ctx context.Context, change func(*Tx) error) (err error) {
	return s.update(ctx, false, change)
}

// UpdateQuietly is like Update for changes that no other process waits for: none is notified.
func (s *Store) UpdateQuietly(ctx context.Context, change func(*Tx) error) (err error) {
	return s.update(ctx, true, change)
}

func (s *Store) update(ctx context.Context, quietly bool, change func(*Tx) error) (err error) {
	broken := false
	defer s.observe(time.Now(), &broken)
	tx, in, err := s.engine.begin(ctx, quietly)
	if err != nil {
		broken = ctx.Err() == nil
		return failure(err)
	}
	committed := false
	defer func() {
		if !committed { // an error, or a panic
			err = errors.Join(err, ignoreDone(tx.Rollback()))
		}
	}()
	t := &Tx{queries: in}
	if err := change(t); err != nil || s.dry {
		return err
	}
	committed = true
	if err := tx.Commit(); err != nil {
		broken = ctx.Err() == nil
		return failure(fmt.Errorf("commit: %w", err))
	}
	if t.queued {
		s.queued.Raise()
	}
	if t.due {
		s.Due.Raise()
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

// Queued returns a channel that gets a value after a commit that added to the outbox.
func (s *Store) Queued() <-chan struct{} { return s.queued }
