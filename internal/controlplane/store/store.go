// Package store keeps what the control plane must not forget: tokens, agents,
// Runners, announcements that are still to go out, and the timeline. It holds no
// rules: what may change how is the registry's. Its SQL is plain enough for
// PostgreSQL to stand in for SQLite.
package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite" // the driver
)

//go:embed migrations/*.sql
var migrations embed.FS

// ErrNotFound is the answer to a question for one row that is not there.
var ErrNotFound = errors.New("not found")

// Store is an open database. It may be used by several goroutines, and the same
// file by several processes.
type Store struct {
	queries
	db     *sql.DB
	queued chan struct{}
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

// Open opens the SQLite database in that file, makes it if there is none and
// brings its tables up to date.
func Open(ctx context.Context, file string) (*Store, error) {
	db, err := sql.Open("sqlite", dsn(file))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	// Readers do not block each other; there is only ever one writer.
	db.SetMaxOpenConns(8)
	s := &Store{queries: queries{q: db}, db: db, queued: make(chan struct{}, 1)}
	if err := s.init(ctx, file); err != nil {
		return nil, errors.Join(fmt.Errorf("open the database %s: %w", file, err), db.Close())
	}
	return s, nil
}

func (s *Store) init(ctx context.Context, file string) error {
	// SQLite makes its side files with the rights of the main one.
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return s.migrate(ctx)
}

func (s *Store) migrate(ctx context.Context) error {
	sub, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, s.db, sub)
	if err != nil {
		return err
	}
	pending, err := provider.HasPending(ctx)
	if err != nil {
		return err
	}
	if !pending {
		return nil
	}
	_, err = provider.Up(ctx)
	return err
}

// dsn asks for what durability and several processes need: a write-ahead log that
// is synced at each commit, waiting for other writers instead of failing, and
// write locks from the start of a transaction, so that it cannot fail half-way.
func dsn(file string) string {
	v := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
	}}
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: v.Encode()}).String()
}

// Close closes the database.
func (s *Store) Close() error { return s.db.Close() }

// Ping says whether the database answers.
func (s *Store) Ping(ctx context.Context) error {
	var one int
	return s.db.QueryRowContext(ctx, "SELECT 1 FROM settings UNION SELECT 1").Scan(&one)
}

// Update runs change in a transaction. An error undoes all of it.
func (s *Store) Update(ctx context.Context, change func(*Tx) error) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	t := &Tx{queries: queries{q: tx}}
	if err := change(t); err != nil {
		return errors.Join(err, ignoreDone(tx.Rollback()))
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("database: commit: %w", err)
	}
	if t.queued {
		s.wake()
	}
	return nil
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

// Watch calls changed after another process changed the database, until the
// context ends. SQLite has no way to be told; a glance at a counter in shared
// memory costs microseconds.
func (s *Store) Watch(ctx context.Context, every time.Duration, changed func()) error {
	// The counter tells of others' changes, from the view of one connection.
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("database: watch: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var last int64
	for {
		var version int64
		err := conn.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("database: watch: %w", err)
		case last != 0 && version != last:
			changed()
			s.wake()
		}
		last = version
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
