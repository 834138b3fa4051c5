package controlplane

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dirLock keeps a second control plane out of the data directory. The kernel
// lets go of it when the process ends, however that happens.
type dirLock struct{ file *os.File }

const servedAlready = "another control plane serves this data directory; stop that one, or name another with --data-dir"

// lockDir locks a file in the data directory; busy is the error text if another process has it.
func lockDir(path, busy string) (*dirLock, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = errors.New(busy)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return &dirLock{file: file}, nil
}

func (l *dirLock) release() error { return l.file.Close() }
