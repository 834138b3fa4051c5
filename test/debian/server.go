package debian

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Say shows a server's progress, if there is somewhere to show it.
func Say(out io.Writer, server, format string, args ...any) {
	if out != nil {
		_, _ = fmt.Fprintf(out, server+": "+format+"\n", args...)
	}
}

// Folder creates a folder for a server below base, with the prefix in its name. It belongs to this
// process while that holds the lock; Folder removes those of killed processes.
func Folder(base, prefix string) (dir string, unlock func(), err error) {
	old, err := filepath.Glob(filepath.Join(base, prefix+"*"))
	if err != nil {
		return "", nil, err
	}
	for _, dir := range old {
		if unlock, err := lock(dir); err == nil {
			_ = os.RemoveAll(dir) // harmless if it stays
			unlock()
		}
	}
	if dir, err = os.MkdirTemp(base, prefix); err != nil {
		return "", nil, err
	}
	unlock, err = lock(dir)
	return dir, unlock, err
}

func lock(dir string) (func(), error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
