package administration

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// maxRootFile bounds a file with root CAs' keys: there are two at most.
const maxRootFile = 64 << 10

// ErrNoRootKeys means that there is nothing to export.
var ErrNoRootKeys = errors.New("the root CA's key is not here: it was exported before")

// ExportRoot writes the keys of the root CAs to a new file that only its owner can read, reads it
// again, and removes the keys from the control plane. It first renews the intermediate CAs if they
// are due.
func (a *Authority) ExportRoot(ctx context.Context, file string) (status CAStatus, err error) {
	release, err := a.lockCA()
	if err != nil {
		return status, err
	}
	defer func() { err = errors.Join(err, release()) }()
	keys, err := a.ca.RootKeys()
	if err != nil {
		return status, err
	}
	if len(keys) == 0 {
		return status, ErrNoRootKeys
	}
	if !a.ca.RootAway() {
		if _, err := a.ca.Upkeep(); err != nil {
			return status, err
		}
	}
	if err := a.moveRootKeys(keys, file); err != nil {
		return status, err
	}
	return a.caStatus(ctx, nextStep(a.ca.Stage()))
}

// moveRootKeys removes the keys only once they are read from the file. If that fails, the file
// goes.
func (a *Authority) moveRootKeys(keys []byte, file string) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600) // no link: a stick's file system may have none
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists; name another file: this one may hold keys that are nowhere else", file)
	}
	if err != nil {
		return fmt.Errorf("root CA's key: %w", err)
	}
	_, err = out.Write(keys)
	err = errors.Join(err, out.Sync(), out.Close(), atomicfile.SyncDir(filepath.Dir(file)))
	var stored []byte
	if err == nil {
		stored, err = readRootFile(file)
	}
	if err == nil {
		err = a.ca.ForgetRootKeys(stored)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("root CA's key was not exported to %s: %w", file, err), os.Remove(file))
	}
	return nil
}

// ImportRoot takes back the keys that ExportRoot wrote, and renews the intermediate CAs if they are
// due. The file stays.
func (a *Authority) ImportRoot(ctx context.Context, file string) (status CAStatus, renewed bool, err error) {
	text, err := readRootFile(file)
	if err != nil {
		return status, false, err
	}
	release, err := a.lockCA()
	if err != nil {
		return status, false, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := a.ca.ImportRootKeys(text); err != nil {
		return status, false, fmt.Errorf("%s: %w", file, err)
	}
	if renewed, err = a.ca.Upkeep(); err != nil {
		return status, false, err
	}
	status, err = a.caStatus(ctx, nextStep(a.ca.Stage()))
	return status, renewed, err
}

func readRootFile(file string) ([]byte, error) {
	text, err := boundedfile.Secret(file, maxRootFile)
	if err != nil {
		return nil, fmt.Errorf("root CA's key: %w", err)
	}
	return text, nil
}
