package datadir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Lock is a lock in the data directory. The kernel releases it when the process ends, however
// that happens.
type Lock struct{ file *os.File }

// The texts of errors: another process has a lock.
const (
	servedAlready = "another control plane serves this data directory; stop that one, or name another with --data-dir"
	caBusy        = "another command changes the CA at this moment; wait for it and try again"
)

// Lock keeps a second control plane out of the data directory.
func (d Data) Lock() (*Lock, error) {
	return lockDir(filepath.Join(d.Dir, fileLock), servedAlready)
}

// LockCA keeps other commands from changing the CA.
func (d Data) LockCA() (*Lock, error) { return lockDir(filepath.Join(d.Dir, fileCALock), caBusy) }

// ErrCABusy means that another command changes the CA.
var ErrCABusy = errors.New(caBusy)

// lockDir locks a file in the data directory; busy is the error text if another process has it.
func lockDir(path, busy string) (*Lock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unusable(filepath.Dir(path), err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New(busy)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return &Lock{file: file}, nil
}

// Release releases the lock.
func (l *Lock) Release() error { return l.file.Close() }
