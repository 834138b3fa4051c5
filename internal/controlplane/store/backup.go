package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
)

// Backup writes a complete copy of the SQLite database in a file to another file, while control
// planes use the database. It replaces the other file once the copy is checked and safe on disk.
func Backup(ctx context.Context, file, to string) error {
	if _, err := os.Stat(file); err != nil { // SQLite would make an empty database
		return fmt.Errorf("back up the database: %w", err)
	}
	err := atomicfile.Fill(to, func(f *os.File) error {
		if err := vacuumInto(ctx, file, f.Name()); err != nil {
			return err
		}
		return check(ctx, f.Name())
	})
	if err != nil {
		return fmt.Errorf("back up the database %s to %s: %w", file, to, err)
	}
	return nil
}

// vacuumInto copies what one transaction reads. It does not keep others from writing
// (https://sqlite.org/lang_vacuum.html).
func vacuumInto(ctx context.Context, file, to string) (err error) {
	db, err := sql.Open("sqlite", dsn(file))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", to)
	return err
}

// check reads the whole database in a file that no other process uses.
func check(ctx context.Context, file string) (err error) {
	db, err := sql.Open("sqlite", uri(file, url.Values{"mode": {"ro"}, "immutable": {"1"}}))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var found string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("the database is damaged: %s; restore an earlier backup", found)
	}
	return nil
}
