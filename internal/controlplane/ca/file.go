package ca

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// maxFile is room for some hundreds of rotations.
const maxFile = 1 << 20

// inFile keeps a CA in a file of that name.
type inFile string

// String implements Keeper.
func (f inFile) String() string { return string(f) }

// Load implements Keeper.
func (f inFile) Load() ([]byte, error) { return boundedfile.Secret(string(f), maxFile) }

// Make implements Keeper. The file is linked into place, so that the first of several
// processes wins.
func (f inFile) Make(text []byte) error {
	return writeFile(string(f), text, func(tmp, file string) error {
		if err := os.Link(tmp, file); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	})
}

// Replace implements Keeper.
func (f inFile) Replace(text []byte) error { return writeFile(string(f), text, os.Rename) }

// load reads the CA, unless it is as it was.
func (c *core) load() error {
	text, err := c.keep.Load()
	if err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	sum := sha256.Sum256(text)
	if s := c.state.Load(); s != nil && s.sum == sum {
		return nil
	}
	s, err := parse(text)
	if err != nil {
		return fmt.Errorf("certificate authority %s: %w; restore it from a backup (a new one would lock out all agents)", c.keep, err)
	}
	s.sum = sum
	c.state.Store(s)
	return nil
}

// Reload loads what another process has changed in the CA, and reports whether there is a change.
// On an error everything stays as it was.
func (c *core) Reload() (changed bool, err error) {
	before := c.state.Load()
	if err := c.load(); err != nil {
		return false, err
	}
	return c.state.Load() != before, nil
}

// writeFile writes a file that only its owner can read and has it put into place,
// complete and on disk.
func writeFile(file string, text []byte, place func(tmp, file string) error) error {
	if err := atomicfile.Place(file, text, place); err != nil {
		return fmt.Errorf("certificate authority: %w", err)
	}
	return nil
}
