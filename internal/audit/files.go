package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// Files stores each batch in a file of a directory, synced to disk before Put returns.
type Files struct{ Dir string }

var _ Store = Files{}

const (
	filePrefix = "audit-"
	fileSuffix = ".jsonl"
)

func (f Files) name(first int64) string {
	return filepath.Join(f.Dir, fmt.Sprintf("%s%012d%s", filePrefix, first, fileSuffix))
}

// Put implements Store. The file appears whole or not at all.
func (f Files) Put(_ context.Context, first int64, text []byte) (bool, error) {
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return false, err
	}
	err := atomicfile.Place(f.name(first), text, os.Link)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	return err == nil, err
}

// Get implements Store.
func (f Files) Get(_ context.Context, first int64) ([]byte, error) {
	text, err := boundedfile.Head(f.name(first), MaxText+1)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// List implements Store.
func (f Files) List(context.Context) ([]int64, error) {
	entries, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []int64
	for _, e := range entries {
		number, isOurs := strings.CutPrefix(strings.TrimSuffix(e.Name(), fileSuffix), filePrefix)
		if n, err := strconv.ParseInt(number, 10, 64); isOurs && err == nil {
			all = append(all, n)
		}
	}
	slices.Sort(all)
	return all, nil
}

// Delete implements Store.
func (f Files) Delete(_ context.Context, first int64) error {
	if err := os.Remove(f.name(first)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Most implements Store.
func (f Files) Most() int { return Keep }

// String implements Store.
func (f Files) String() string { return f.Dir }
