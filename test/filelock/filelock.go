// Package filelock has locks between processes of this machine (flock(2)). A lock ends with its
// process at the latest.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// interval is how often Wait tries.
const interval = 100 * time.Millisecond

// Try returns the locked file, which it creates if there is none; closing the file unlocks it. It
// returns nil if another process has the lock, or has just removed the file.
func Try(path string) (*os.File, error) { return try(path, unix.LOCK_EX) }

// Share is Try for a lock that several processes may have at a time, while none has it by Try.
func Share(path string) (*os.File, error) { return try(path, unix.LOCK_SH) }

func try(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, file.Close()
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	locked, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if current, err := os.Stat(path); err != nil || !os.SameFile(locked, current) {
		return nil, file.Close()
	}
	return file, nil
}

// Wait tries until it has the lock, or ctx ends. It calls waiting once if it has to wait; nil is
// nothing to call.
func Wait(ctx context.Context, path string, waiting func()) (unlock func() error, err error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		file, err := Try(path)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if file != nil {
			return file.Close, nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("another process has the lock %s: %w", path, ctx.Err())
		case <-tick.C:
		}
	}
}
