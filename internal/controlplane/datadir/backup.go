package datadir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// fileBackup is as old as the last backup of the database. It contains where that is.
const fileBackup = "backup"

// Backup writes a complete copy of the SQLite database to a file, while a control plane may serve.
// It replaces the file once the copy is checked, and keeps that many earlier ones as FILE.1, the
// newest, and so on.
func (d Data) Backup(ctx context.Context, file string, keep int) error {
	if d.Database.Given() || d.Elsewhere() {
		return errors.New("the database is PostgreSQL; back it up with pg_dump, as docs/operator/database.md says")
	}
	if !d.Has(FileDatabase) {
		return fmt.Errorf("%s has no %s to back up; give --data-dir as `pipeops-controlplane serve` has it", d.Dir, FileDatabase)
	}
	if live, err := os.Stat(filepath.Join(d.Dir, FileDatabase)); err == nil {
		if at, err := os.Stat(file); err == nil && os.SameFile(live, at) {
			return fmt.Errorf("%s is the database itself; name another file", file)
		}
	}
	fresh := file + ".new"
	if err := store.Backup(ctx, filepath.Join(d.Dir, FileDatabase), fresh); err != nil {
		return err
	}
	if err := shift(file, keep); err != nil {
		return fmt.Errorf("keep earlier backups: %w; the new one is %s", err, fresh)
	}
	if err := errors.Join(os.Rename(fresh, file), atomicfile.SyncDir(filepath.Dir(file))); err != nil {
		return fmt.Errorf("back up the database: %w; the backup is %s", err, fresh)
	}
	if err := atomicfile.Write(filepath.Join(d.Dir, fileBackup), []byte(file+"\n")); err != nil {
		return fmt.Errorf("data directory: note the time of the backup: %w", err)
	}
	return nil
}

// shift renames FILE.1 to FILE.2 and so on, and links FILE as FILE.1, so that FILE never
// disappears.
func shift(file string, keep int) error {
	if keep == 0 {
		return nil
	}
	earlier := func(n int) string { return file + "." + strconv.Itoa(n) }
	for n := keep; n > 1; n-- {
		if err := os.Rename(earlier(n-1), earlier(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := os.Remove(earlier(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Link(file, earlier(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// LastBackup returns when Backup last succeeded; the zero time if never.
func (d Data) LastBackup() time.Time {
	info, err := os.Stat(filepath.Join(d.Dir, fileBackup))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
