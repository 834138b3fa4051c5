package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ErrNotEmpty reports that the target database is not empty.
var ErrNotEmpty = errors.New("the database is not empty; copy into a new one")

// Copied is a table and the number of its rows.
type Copied struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
}

// Copy copies the SQLite database in that file, after it has migrated it, into PostgreSQL: all
// tables or, on any failure, none. No other process may use the file meanwhile.
func Copy(ctx context.Context, file string, to Postgres) ([]Copied, error) {
	from, err := Open(ctx, file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }() // nothing was written
	target, err := OpenPostgres(ctx, to)
	if err != nil {
		return nil, err
	}
	if err := target.Serve(ctx); err != nil {
		return nil, errors.Join(err, target.Close())
	}
	done, err := target.engine.(*postgres).copyFrom(ctx, from.engine.(*sqlite).db.db)
	if err != nil {
		err = fmt.Errorf("copy %s to %s: %w", file, to, err)
	}
	return done, errors.Join(err, target.Close())
}

// copyFrom copies on a separate connection, without the usual timeouts.
func (e *postgres) copyFrom(ctx context.Context, from *sql.DB) (done []Copied, err error) {
	cfg := e.cfg.Copy()
	cfg.RuntimeParams["statement_timeout"], cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "0", "0"
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	source, err := from.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = source.Rollback() }() // it only reads
	err = pgx.BeginFunc(ctx, conn, func(target pgx.Tx) error {
		if _, err := target.Exec(ctx, `SELECT pg_advisory_xact_lock($1, $2)`, lockSpace, lockWriter); err != nil {
			return err
		}
		tables, err := tablesOf(ctx, source)
		if err != nil {
			return err
		}
		if err := mustBeNew(ctx, target, tables); err != nil {
			return err
		}
		for _, table := range tables {
			n, err := copyTable(ctx, source, target, table)
			if err != nil {
				return fmt.Errorf("table %s: %w", table, err)
			}
			done = append(done, Copied{table, n})
		}
		return nil
	})
	return done, err
}

// tablesOf returns the tables, each after those that it refers to. The names come only from the
// migrations.
func tablesOf(ctx context.Context, source *sql.Tx) ([]string, error) {
	name := func(row scanner, s *string) error { return row.Scan(s) }
	left, err := all(ctx, source, name, `SELECT name FROM sqlite_master WHERE type = 'table'
		AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'goose%' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	var ordered []string
	for len(left) > 0 {
		before := len(left)
		for _, table := range slices.Clone(left) {
			parents, err := all(ctx, source, name, `SELECT "table" FROM pragma_foreign_key_list($1)`, table)
			if err != nil {
				return nil, err
			}
			if !slices.ContainsFunc(parents, func(p string) bool { return p != table && slices.Contains(left, p) }) {
				ordered = append(ordered, table)
				left = slices.DeleteFunc(left, func(s string) bool { return s == table })
			}
		}
		if len(left) == before {
			return nil, fmt.Errorf("tables %s refer to each other in a circle", strings.Join(left, ", "))
		}
	}
	return ordered, nil
}

// mustBeNew refuses a database that holds anything but the rows of the migrations. It deletes these
// rows, because the copy includes them.
func mustBeNew(ctx context.Context, target pgx.Tx, tables []string) error {
	made, err := newCounts(ctx, tables)
	if err != nil {
		return err
	}
	for _, table := range tables {
		var n int64
		if err := target.QueryRow(ctx, `SELECT COUNT(*) FROM `+quoted(table)).Scan(&n); err != nil {
			return err
		}
		if n != made[table] {
			return fmt.Errorf("%w: table %s has rows", ErrNotEmpty, table)
		}
	}
	for _, table := range slices.Backward(tables) { // referring tables first
		if _, err := target.Exec(ctx, `DELETE FROM `+quoted(table)); err != nil {
			return err
		}
	}
	return nil
}

// newCounts returns how many rows the tables of a new database have.
func newCounts(ctx context.Context, tables []string) (counts map[string]int64, err error) {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1) // each connection has its own in-memory database
	if err := migrate(ctx, sqliteDialect, db); err != nil {
		return nil, err
	}
	counts = map[string]int64{}
	for _, table := range tables {
		var n int64
		if err := db.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+quoted(table)).Scan(&n); err != nil {
			return nil, err
		}
		counts[table] = n
	}
	return counts, nil
}

// copyTable streams the rows, compares the counts, and lets the counters continue after the copied
// IDs.
func copyTable(ctx context.Context, source *sql.Tx, target pgx.Tx, table string) (int64, error) {
	rows, err := source.QueryContext(ctx, `SELECT * FROM `+quoted(table)) //nolint:gosec // a name of ours
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return 0, err
	}
	_, err = target.CopyFrom(ctx, pgx.Identifier{table}, columns, &copySource{Rows: rows, width: len(columns)})
	if err = errors.Join(err, rows.Err()); err != nil {
		return 0, err
	}
	var had, has int64
	if err := source.QueryRowContext(ctx, `SELECT COUNT(*) FROM `+quoted(table)).Scan(&had); err != nil {
		return 0, err
	}
	if err := target.QueryRow(ctx, `SELECT COUNT(*) FROM `+quoted(table)).Scan(&has); err != nil {
		return 0, err
	}
	if had != has {
		return 0, fmt.Errorf("%d rows were copied of %d", has, had)
	}
	return has, continueCounters(ctx, source, target, table)
}

// continueCounters keeps IDs from being reused, including those of deleted rows: SQLite remembers
// the last one.
func continueCounters(ctx context.Context, source *sql.Tx, target pgx.Tx, table string) error {
	var last int64
	err := source.QueryRowContext(ctx, `SELECT seq FROM sqlite_sequence WHERE name = $1`, table).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) || err == nil && last == 0 {
		return nil // it has no counter, or an unused one
	}
	if err != nil {
		return err
	}
	_, err = target.Exec(ctx, `SELECT setval(pg_get_serial_sequence($1, 'id'), $2)`, table, last)
	return err
}

func quoted(table string) string { return pgx.Identifier{table}.Sanitize() }

// copySource passes rows of database/sql to COPY.
type copySource struct {
	*sql.Rows
	width int
}

// Values implements pgx.CopyFromSource.
func (c *copySource) Values() ([]any, error) {
	values := make([]any, c.width)
	into := make([]any, c.width)
	for i := range values {
		into[i] = &values[i]
	}
	return values, c.Scan(into...)
}
