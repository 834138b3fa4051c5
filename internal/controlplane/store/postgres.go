package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/rs/zerolog"
)

// postgres is a database on a server.
type postgres struct {
	db  *sql.DB
	cfg *pgx.ConnConfig
	log zerolog.Logger
	// me tells our own notifications from others'.
	me string
	// writer is taken by whoever writes, so that one connection of ours waits for
	// the writers elsewhere, and not all of them.
	writer chan struct{}
	// session is what serve claimed the database with.
	session *session
	claim   claim
}

// The advisory locks, and the channel of notifications.
const (
	lockSpace    = 0x70697065 // "pipe", so as not to meet the locks of others
	lockWriter   = 1
	lockServer   = 2
	lockLeader   = 3
	channelNews  = "pipeops_controlplane"
	maxOpenConns = 16
)

// OpenPostgres opens a database on a server and brings its tables up to date. The
// database has to be there, and the user has to be its owner or may make tables.
func OpenPostgres(ctx context.Context, p Postgres) (*Store, error) {
	cfg, err := p.connConfig()
	if err != nil {
		return nil, fmt.Errorf("the database's URL %w", err)
	}
	if err := prepare(ctx, *cfg); err != nil {
		return nil, fmt.Errorf("open the database %s: %w", p, err)
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(maxOpenConns)
	db.SetMaxIdleConns(maxOpenConns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	db.SetConnMaxLifetime(time.Hour) // a server that was added gets its share
	e := &postgres{db: db, cfg: cfg, log: p.Log, me: rand.Text(), writer: make(chan struct{}, 1)}
	return &Store{queries: queries{q: alone{timed{db}, e}}, engine: e, queued: make(chan struct{}, 1)}, nil
}

// prepare looks whether the database will do, and makes its tables. Making an index
// of a large table may take longer than a query.
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

// begin takes the lock of the one writer, which the transaction's end releases,
// and has the others told of the change when it is committed.
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
	// What is read after the lock was taken has to be what the last writer left: that
	// is so with READ COMMITTED, the stricter levels look at the moment before.
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
	return t, queries{q: timed{tx}}, nil
}

// turn is a writer's.
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

// alone runs a statement that stands alone as a transaction of one.
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

func (e *postgres) quiet() queries { return queries{q: timed{e.db}} }

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

// bounded is a context for rows, which are read when the query's call is over: it
// ends at its deadline or with its parent.
func bounded(ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	context.AfterFunc(ctx, cancel)
	return ctx
}

func (e *postgres) close() error {
	err := e.db.Close()
	if e.session != nil {
		err = errors.Join(err, e.session.close(context.Background()))
	}
	return err
}
