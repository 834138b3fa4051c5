package recording

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

// Files stores recordings in a directory, each in its own directory with a file for each part.
// A part is on disk before Put returns.
type Files struct{ Dir string }

var _ Store = Files{}

const fileSuffix = ".jsonl"

func (f Files) name(id string, part int) string {
	return filepath.Join(f.Dir, id, fmt.Sprintf("%06d%s", part, fileSuffix))
}

// Put implements Store. The file appears whole or not at all.
func (f Files) Put(_ context.Context, id string, part int, text []byte) error {
	dir := filepath.Join(f.Dir, id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(f.name(id, part), text); err != nil || part > 0 {
		return err
	}
	return atomicfile.SyncDir(f.Dir)
}

// Get implements Store.
func (f Files) Get(_ context.Context, id string, part int) ([]byte, error) {
	text, err := boundedfile.Head(f.name(id, part), MaxPart)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// List implements Store. The names of directories sort by time.
func (f Files) List(context.Context) ([]Entry, error) {
	dirs, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Entry
	for _, d := range dirs {
		if !ValidID(d.Name()) {
			continue
		}
		e, err := f.entry(d.Name())
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func (f Files) entry(id string) (Entry, error) {
	e := Entry{ID: id}
	files, err := os.ReadDir(filepath.Join(f.Dir, id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have been removed meanwhile
		return e, err
	}
	for _, file := range files {
		number, ours := strings.CutSuffix(file.Name(), fileSuffix)
		part, err := strconv.Atoi(number)
		info, gone := file.Info()
		if ours && err == nil && gone == nil {
			e.Add(part, info.Size())
		}
	}
	return e, nil
}

// Delete implements Store.
func (f Files) Delete(_ context.Context, id string) error {
	return os.RemoveAll(filepath.Join(f.Dir, id))
}

// String implements Store.
func (f Files) String() string { return f.Dir }
