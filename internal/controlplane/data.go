package controlplane

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
	fileCA       = "ca.pem"
	fileDatabase = "controlplane.db"
	fileLock     = "serve.lock"
	fileCALock   = "ca.lock"
	// fileElsewhere records the database if it is not in the directory.
	fileElsewhere = "database"
)

// Made reports whether the data directory of a control plane exists.
func (d Data) Made() bool { return d.has(fileDatabase) || d.has(fileElsewhere) }

// Elsewhere reports whether its database is not in the directory.
func (d Data) Elsewhere() bool { return d.has(fileElsewhere) }

func (d Data) has(file string) bool {
	_, err := os.Stat(filepath.Join(d.Dir, file))
	return err == nil
}

// openStore opens the database. The directory remembers which kind it has: with the
// other one, a control plane would know none of its agents.
func (d Data) openStore(ctx context.Context) (*store.Store, error) {
	at, err := os.ReadFile(filepath.Join(d.Dir, fileElsewhere))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	switch elsewhere := err == nil; {
	case !d.Database.Given() && elsewhere:
		return nil, fmt.Errorf("the database of %s is %s, not SQLite; give --database or --database-file as `pipeops-controlplane serve` has it",
			d.Dir, strings.TrimSpace(string(at)))
	case !d.Database.Given():
		return store.Open(ctx, filepath.Join(d.Dir, fileDatabase))
	case !elsewhere && d.has(fileDatabase):
		return nil, fmt.Errorf("the database of %s is SQLite, in %s; move it with `pipeops-controlplane database copy`, or leave --database out",
			d.Dir, fileDatabase)
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
