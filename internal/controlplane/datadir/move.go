package datadir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// fileMoved is the name of the SQLite database after PostgreSQL has replaced it.
const fileMoved = FileDatabase + ".moved"

// MoveDatabase moves the registry from SQLite to PostgreSQL. It copies all or nothing, and updates
// the directory only after that. It returns the name of the file that keeps the old data. The data
// names PostgreSQL. No control plane may serve either database meanwhile.
func MoveDatabase(ctx context.Context, d Data) (done []store.Copied, kept string, err error) {
	file := filepath.Join(d.Dir, FileDatabase)
	if !d.Has(FileDatabase) {
		return nil, "", fmt.Errorf("%s has no %s to copy; give --data-dir as `pipeops-controlplane serve` has it", d.Dir, FileDatabase)
	}
	lock, err := d.Lock()
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	if done, err = store.Copy(ctx, file, d.Database); err != nil {
		return nil, "", err
	}
	kept = filepath.Join(d.Dir, fileMoved)
	// SQLite has merged its side files into the main one and removed them by now.
	if err := os.Rename(file, kept); err != nil {
		return nil, "", fmt.Errorf("data directory: %w; the registry is copied: move %s away", err, file)
	}
	return done, kept, d.markElsewhere()
}
