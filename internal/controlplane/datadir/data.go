// Package datadir has what a control plane keeps in its data directory, or finds by it: the
// database, locks, key files, and the addresses that serve stores for the other subcommands.
package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// Data is where a control plane keeps its durable data.
type Data struct {
	// Dir is the data directory, with the CA unless that is in the database.
	Dir string
	// Database is PostgreSQL's; the zero value means SQLite in the data directory.
	Database store.Postgres
	// CAKey is what the CA is encrypted with that is in the database, for several
	// control planes. Without one it is in the data directory.
	CAKey ca.Key
}

// Shared reports whether all data is in the database, so that several control planes may serve it.
func (d Data) Shared() bool { return d.Database.Given() && d.CAKey.Given() }

// The files in the data directory.
const (
	FileCA = "ca.pem"
	// FileTrust has the CA's certificates if the CA is in the database, for the commands that
	// verify the control plane.
	FileTrust    = "trust.pem"
	FileDatabase = "controlplane.db"
	fileLock     = "serve.lock"
	fileCALock   = "ca.lock"
	// fileElsewhere records the database if it is not in the directory.
	fileElsewhere = "database"
)

// Made reports whether the data directory of a control plane exists.
func (d Data) Made() bool { return d.Has(FileDatabase) || d.Has(fileElsewhere) }

// Elsewhere reports whether its database is not in the directory.
func (d Data) Elsewhere() bool { return d.Has(fileElsewhere) }

// Has reports whether a file is in the data directory.
func (d Data) Has(file string) bool {
	_, err := os.Stat(filepath.Join(d.Dir, file))
	return err == nil
}

// OpenStore opens the database. The directory remembers which kind it has: with the
// other one, a control plane would know none of its agents.
func (d Data) OpenStore(ctx context.Context) (*store.Store, error) {
	at, err := os.ReadFile(filepath.Join(d.Dir, fileElsewhere))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	switch elsewhere := err == nil; {
	case !d.Database.Given() && elsewhere:
		return nil, fmt.Errorf("the database of %s is %s, not SQLite; give --database or --database-file as `pipeops-controlplane serve` has it",
			d.Dir, strings.TrimSpace(string(at)))
	case !d.Database.Given() && d.Has(FileCA) && !d.Has(FileDatabase):
		return nil, fmt.Errorf("%s has %s, but no %s: the agents and Runners of this CA would be unknown "+
			"(fix: restore %s from a backup, docs/operator/database.md; to begin without it, create it as an empty file)",
			d.Dir, FileCA, FileDatabase, FileDatabase)
	case !d.Database.Given():
		return store.Open(ctx, filepath.Join(d.Dir, FileDatabase))
	case !elsewhere && d.Has(FileDatabase):
		return nil, fmt.Errorf("the database of %s is SQLite, in %s; move it with `pipeops-controlplane database copy`, or leave --database out",
			d.Dir, FileDatabase)
	}
	s, err := store.OpenPostgres(ctx, d.Database)
	if err != nil {
		return nil, err
	}
	if err := d.markElsewhere(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// markElsewhere notes where the database is.
func (d Data) markElsewhere() error {
	err := os.WriteFile(filepath.Join(d.Dir, fileElsewhere), []byte(d.Database.String()+"\n"), 0o600)
	if err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	return nil
}

// Make makes the directory and refuses one that others can write.
func (d Data) Make() error {
	dir := d.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return unusable(dir, err)
	}
	info, err := os.Stat(dir)
	switch {
	case err != nil:
		return fmt.Errorf("data directory: %w", err)
	case !info.IsDir():
		return fmt.Errorf("data directory %s is not a directory", dir)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("data directory %s can be written by others; run `chmod 700 %s`", dir, dir)
	}
	return nil
}

// unusable returns the error of a directory that this user cannot use.
func unusable(dir string, err error) error {
	return fmt.Errorf("data directory: %w (fix: give %s to the user that runs the control plane, or name another directory with --data-dir)", err, dir)
}
