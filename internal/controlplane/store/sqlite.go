package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	_ "modernc.org/sqlite" // the driver

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// sqlite is a database in a file. Several processes may use it.
type sqlite struct {
	db *prepared
	// writer is the one connection for transactions, for which writers wait in turn. On db's
	// connections, each writer would wait for SQLite's lock, and no reader could get a connection
	// meanwhile.
	writer *prepared
}

// readers is how many connections read at a time.
const readers = 8

// Open opens the SQLite database in that file, creates it if there is none, and updates its tables.
func Open(ctx context.Context, file string) (*Store, error) {
	db, err := openFile(file)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", file, failure(err))
	}
	if err := migrate(ctx, sqliteDialect, db); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", file, failure(err)), db.Close())
	}
	writer, err := sql.Open("sqlite", dsn(file))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", file, failure(err)), db.Close())
	}
	writer.SetMaxOpenConns(1)
	e := &sqlite{db: newPrepared(db), writer: newPrepared(writer)}
	return &Store{queries: newQueries(e.db), engine: e, queued: wake.New(), Due: wake.New()}, nil
}

func openFile(file string) (*sql.DB, error) {
	// SQLite gives its side files the permissions of the main one. A database that exists must not
	// be opened and closed here: that would drop the POSIX locks of this process' other
	// connections, and another program would take itself for the last user and remove the
	// write-ahead log (https://sqlite.org/howtocorrupt.html, 2.2).
	switch f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600); {
	case err == nil:
		if err := f.Close(); err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	db, err := sql.Open("sqlite", dsn(file))
	if err != nil {
		return nil, err
	}
	// Readers do not block each other.
	db.SetMaxOpenConns(readers)
	db.SetMaxIdleConns(readers) // opening one, and compiling its statements, costs more than many reads
	return db, nil
}

// dsn sets what durability and several processes need. The write-ahead log is synced at each
// commit, and writers wait for each other instead of failing. Transactions take the write lock at
// their start, so that they cannot fail half-way.
func dsn(file string) string {
	v := url.Values{"_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)",
	}}
	return uri(file, v)
}

// uri returns a file's name as SQLite takes it (https://sqlite.org/uri.html).
func uri(file string, v url.Values) string {
	return (&url.URL{Scheme: "file", Opaque: (&url.URL{Path: file}).EscapedPath(), RawQuery: v.Encode()}).String()
}

func (e *sqlite) begin(ctx context.Context, _ bool) (transaction, queries, error) {
	tx, err := e.writer.begin(ctx)
	return tx, newQueries(preparedTx{tx, e.writer}), err
}

// serve does nothing: the data directory that contains the file has its own lock.
func (e *sqlite) serve(context.Context, bool) error { return nil }

// lead runs lead at once: only one process serves the file.
func (e *sqlite) lead(ctx context.Context, lead func(context.Context)) error {
	lead(ctx)
	return nil
}

func (e *sqlite) quiet() queries { return newQueries(e.db) }

func (e *sqlite) clock() string {
	return `CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)`
}

// beside is the same: watch reports what any other connection wrote.
func (e *sqlite) beside() (engine, queries) { return besideSQLite{e}, newQueries(e.db) }

// besideSQLite has nothing to close.
type besideSQLite struct{ *sqlite }

func (besideSQLite) close() error { return nil }

func (e *sqlite) close() error { return errors.Join(e.writer.close(), e.db.close()) }

// watch polls: SQLite has no notifications, and reading a counter in shared memory costs
// microseconds.
func (e *sqlite) watch(ctx context.Context, every time.Duration, changed func()) error {
	// The counter shows others' changes, from the view of one connection.
	conn, err := e.db.db.Conn(ctx)
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
		}
		last = version
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
