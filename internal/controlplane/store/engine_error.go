package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	sqlitedriver "modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// retryAfter is when a call that the database failed may be sent again.
const retryAfter = 2 * time.Second

// EngineError is an error of the database itself: it is away, full or damaged.
type EngineError struct {
	Detail, Fix string
	err         error
}

// failure returns an error of a statement, as a EngineError if its cause is known.
func failure(err error) error {
	if f := diagnose(err); f != nil {
		return f
	}
	return fmt.Errorf("database: %w", err)
}

// Error returns the cause, the database's own words and the fix.
func (f *EngineError) Error() string {
	return fmt.Sprintf("database: %s: %v (fix: %s)", f.Detail, f.err, f.Fix)
}

func (f *EngineError) Unwrap() error { return f.err }

// Problem implements problem.Source. It names no cause, which concerns operators alone.
func (f *EngineError) Problem() *problem.Error {
	return problem.Errorf(problem.Unavailable, "try again in a moment", "the control plane's database fails").WithRetryAfter(retryAfter)
}

// Explained returns the problem for an operator, with cause and fix.
func (f *EngineError) Explained() *problem.Error {
	return problem.Errorf(problem.Unavailable, f.Fix, "the control plane's database fails: %s", f.Detail).WithRetryAfter(retryAfter)
}

const (
	fixSpace   = "make room: `df -h` shows the file systems"
	fixDamaged = "restore a backup (docs/operator/database.md); `sqlite3 controlplane.db .recover` prints what can still be read"
	fixAccess  = "give the file and its directory to the user that runs the control plane, and mount the file system for writing"
	fixAway    = "see whether PostgreSQL runs, and whether it can be reached from here"
)

// sqliteFailures has causes by primary result code (https://sqlite.org/rescode.html).
var sqliteFailures = map[int]EngineError{
	sqlite3.SQLITE_FULL:     {Detail: "the disk is full", Fix: fixSpace},
	sqlite3.SQLITE_IOERR:    {Detail: "its file cannot be read or written: the disk is full or broken", Fix: fixSpace + "; `dmesg` shows faults of disks"},
	sqlite3.SQLITE_CORRUPT:  {Detail: "its file is damaged", Fix: fixDamaged},
	sqlite3.SQLITE_NOTADB:   {Detail: "its file is damaged, or is not a SQLite database", Fix: fixDamaged},
	sqlite3.SQLITE_CANTOPEN: {Detail: "its file cannot be opened", Fix: fixAccess},
	sqlite3.SQLITE_READONLY: {Detail: "its file cannot be written", Fix: fixAccess},
	sqlite3.SQLITE_PERM:     {Detail: "its file cannot be opened", Fix: fixAccess},
	sqlite3.SQLITE_BUSY:     {Detail: "another program has locked its file", Fix: "end the program that keeps a transaction open: `fuser -v controlplane.db` names it"},
}

// postgresFailures has causes by SQLSTATE, or by its class, which is the first two characters
// (https://www.postgresql.org/docs/current/errcodes-appendix.html).
var postgresFailures = map[string]EngineError{
	"53100": {Detail: "its disk is full", Fix: "make room on PostgreSQL's disk"},
	"53300": {Detail: "it accepts no more connections", Fix: "raise max_connections of PostgreSQL, or end other clients: pg_stat_activity lists them"},
	"53":    {Detail: "it lacks resources", Fix: "see PostgreSQL's log"},
	"57":    {Detail: "it stops, starts or canceled the statement", Fix: "see PostgreSQL's log"},
	"08":    {Detail: "the connection to it failed", Fix: fixAway},
	"25006": {Detail: "it is read-only, like a standby", Fix: "give the URL of the primary, or of all servers with target_session_attrs=read-write"},
	"28":    {Detail: "it does not accept the user or the password", Fix: "correct the user and password in its URL"},
	"3D000": {Detail: "it does not exist on its server", Fix: "create it: CREATE DATABASE"},
	"58":    {Detail: "its server has a fault", Fix: "see PostgreSQL's log"},
	"XX":    {Detail: "its server has a fault", Fix: "see PostgreSQL's log"},
}

// diagnose returns nil for an error that is not the database's own.
func diagnose(err error) *EngineError {
	with := func(f EngineError) *EngineError {
		f.err = err
		return &f
	}
	if known, ok := errors.AsType[*EngineError](err); ok {
		return known
	}
	if ours, ok := errors.AsType[*sqlitedriver.Error](err); ok {
		if f, ok := sqliteFailures[ours.Code()&0xff]; ok {
			return with(f)
		}
	}
	if theirs, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, code := range []string{theirs.Code, theirs.Code[:min(2, len(theirs.Code))]} {
			if f, ok := postgresFailures[code]; ok {
				return with(f)
			}
		}
		return nil
	}
	// A transaction whose context ends is rolled back, and its next statement reports only that.
	if (Away(err) || errors.Is(err, sql.ErrTxDone)) && !errors.Is(err, context.Canceled) {
		return with(EngineError{Detail: "it cannot be reached, or does not answer in time", Fix: fixAway})
	}
	return nil
}
