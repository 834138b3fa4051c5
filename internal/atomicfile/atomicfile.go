// Package atomicfile replaces files so that a crash leaves the old content or the new one.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
)

// Write replaces the file at path, which only its owner can read. Once it returns, a crash of the
// machine does not lose the content. The folder has to exist.
func Write(path string, text []byte) error {
	return Place(path, text, os.Rename)
}

// Place writes the content beside path and has place move it there, for example by os.Link, which
// refuses to replace a file.
func Place(path string, text []byte, place func(tmp, path string) error) error {
	return put(path, place, func(f *os.File) error {
		_, err := f.Write(text)
		return err
	})
}

// Fill is like Write for content that fill writes. It may change the file's mode.
func Fill(path string, fill func(*os.File) error) error { return put(path, os.Rename, fill) }

func put(path string, place func(tmp, path string) error, fill func(*os.File) error) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, ".new-*") // 0600
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }()
	if err = errors.Join(fill(tmp), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	if err := place(tmp.Name(), path); err != nil {
		return err
	}
	return SyncDir(dir)
}

// SyncDir makes new names in a folder survive a crash of the machine.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" { // it refuses to sync folders
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
