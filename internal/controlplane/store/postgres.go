package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// This engine is a database on a server.
type postgres struct {
	db  *sql.DB
	cfg *pgx.ConnConfig
	log zerolog.Logger
	// reread is Postgres.Reread.
	reread func() (Postgres, error)
	// me distinguishes our own notifications from those of others.
	me string
	// writer is taken by each writer in turn. So only one of our connections, not all, waits for
	// writers in other processes.
	writer chan struct{}
	// session is the connection on which serve claimed the database.
	session *session
	claim   claim
	// borrowed is set if the connections of db belong to another engine.
	borrowed bool
}

// The advisory locks, and the channel of notifications.
const (
	lockSpace    = 0x70697065 // "pipe", to avoid the locks of other programs
	lockWriter   = 1
	lockServer   = 2
	lockLeader   = 3
	channelNews  = "pipeops_controlplane"
	maxOpenConns = 16
)

// OpenPostgres opens a database on a server and updates its tables. The database must exist, and
// the user must be its owner or be allowed to create tables.
func OpenPostgres(ctx context.Context, p Postgres) (*Store, error) {
	cfg, err := p.connConfig()
	if err != nil {
		return nil, fmt.Errorf("the database's URL %w", err)
	}
	if err := prepare(ctx, *cfg); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", p, err)
	}
	e := &postgres{cfg: cfg, log: p.Log, reread: p.Reread, me: rand.Text(), writer: make(chan struct{}, 1)}
	db := stdlib.OpenDB(*cfg, stdlib.OptionResetSession(writable), stdlib.OptionBeforeConnect(func(_ context.Context, now *pgx.ConnConfig) error {
		*now = *e.current()
		return nil
	}))
	db.SetMaxOpenConns(maxOpenConns)
	db.SetMaxIdleConns(maxOpenConns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	db.SetConnMaxLifetime(time.Hour) // so that an added server gets its share
	e.db = db
	return &Store{queries: newQueries(alone{timed{db}, e}), engine: e, queued: wake.New(), Due: wake.New()}, nil
}

// beside notifies under another name, and has a separate session.
func (e *postgres) beside() (engine, queries) {
	other := *e
	other.me, other.borrowed, other.session, other.claim = rand.Text(), true, nil, noClaim
	return &other, newQueries(alone{timed{e.db}, &other})
}

// writable has the pool drop a connection that became read-only, or began so, during a failover.
// The server reports both
// (https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-ASYNC).
func writable(_ context.Context, conn *pgx.Conn) error {
	for _, parameter := range []string{"in_hot_standby", "default_transaction_read_only"} {
		if conn.PgConn().ParameterStatus(parameter) == "on" {
			return driver.ErrBadConn
		}
	}
	return nil
}

// prepare checks whether the database is suitable, and creates its tables. Creating an index of a
// large table may take longer than a query.
func prepare(ctx context.Context, cfg pgx.ConnConfig) (err error) {
	patient := *cfg.Copy()
	patient.RuntimeParams["statement_timeout"] = "0"
	db := stdlib.OpenDB(patient)
	defer func() { err = errors.Join(err, db.Close()) }()
	var encoding string
	if err := (timed{db}).QueryRowContext(ctx, "SHOW server_encoding").Scan(&encoding); err != nil {
		return err
	}
	if encoding != "UTF8" {
		return fmt.Errorf("its encoding is %s; make one with ENCODING 'UTF8'", encoding)
	}
	return migrate(ctx, postgresDialect, db)
}

// begin takes the lock of the single writer, which the end of the transaction releases. On commit,
// the other processes are notified of the change.
func (e *postgres) begin(ctx context.Context, quietly bool) (transaction, queries, error) {
	select {
	case e.writer <- struct{}{}:
	case <-ctx.Done():
		return nil, queries{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	release := func() {
		cancel()
		<-e.writer
	}
	// Reads after the lock was taken must see what the last writer left. READ COMMITTED ensures
	// that; the stricter levels see an earlier state.
	tx, err := e.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		release()
		return nil, queries{}, err
	}
	t := &turn{tx: tx, release: release}
	if quietly {
		_, err = timed{tx}.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, lockSpace, lockWriter)
	} else {
		_, err = timed{tx}.ExecContext(ctx, `SELECT pg_advisory_xact_lock($1, $2), pg_notify($3, $4)`, lockSpace, lockWriter, channelNews, e.me)
	}
	if err != nil {
		return nil, queries{}, errors.Join(err, ignoreDone(t.Rollback()))
	}
	return t, newQueries(timed{tx}), nil
}

// turn is a writer's transaction.
type turn struct {
	tx      *sql.Tx
	release func()
}

func (t *turn) Commit() error {
	defer t.release()
	return t.tx.Commit()
}

func (t *turn) Rollback() error {
	defer t.release()
	return t.tx.Rollback()
}

// alone runs a single statement as a separate transaction.
type alone struct {
	timed
	e *postgres
}

func (a alone) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tx, in, err := a.e.begin(ctx, false)
	if err != nil {
		return nil, err
	}
	result, err := in.q.ExecContext(ctx, query, args...)
	if err != nil {
		return nil, errors.Join(err, ignoreDone(tx.Rollback()))
	}
	return result, tx.Commit()
}

func (e *postgres) quiet() queries { return newQueries(timed{e.db}) }

func (e *postgres) clock() string {
	return `CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)`
}

// timed bounds every statement.
type timed struct{ querier }

func (t timed) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	return t.querier.ExecContext(ctx, query, args...)
}

func (t timed) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return t.querier.QueryContext(bounded(ctx), query, args...)
}

func (t timed) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return t.querier.QueryRowContext(bounded(ctx), query, args...)
}

// bounded returns a context for rows, which are read after the query's call has returned. It ends
// at its deadline or with its parent.
func bounded(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func (e *postgres) close() (err error) {
	if !e.borrowed {
		err = e.db.Close()
	}
	if e.session != nil {
		err = errors.Join(err, e.session.close(context.Background()))
	}
	return err
}
