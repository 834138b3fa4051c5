// Package inputs declares files to Go's test cache on which a test depends without opening them:
// those that another process reads, such as scripts, charts and units.
//
// The go command only considers files that the test's own process opens, and only those whose path
// begins with the module's folder. It compares size and modification time before it reuses a
// result.
package inputs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// root is found before a test changes its folder.
var root = find()

// Root returns the top folder of the repository: the nearest folder with the Makefile, from the
// process's starting folder upwards.
func Root() string { return root }

func find() string {
	dir, err := filepath.Abs(".")
	if err != nil {
		return "."
	}
	for d := dir; ; d = filepath.Dir(d) {
		// Not os.Stat, with which a change of the Makefile would make all tests run again.
		if unix.Access(filepath.Join(d, "Makefile"), unix.F_OK) == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return dir
		}
	}
}

// Path returns a file or folder, named from Root, in the form that the go command accepts as one of
// the module. This includes paths outside the module: a cleaned path to those would not count.
func Path(name string) string { return Root() + string(filepath.Separator) + filepath.FromSlash(name) }

// Depend makes the test depend on files and folders, named from Root, with everything below them.
func Depend(names ...string) error {
	for _, name := range names {
		if err := depend(Path(name)); err != nil {
			return fmt.Errorf("input %s: %w", name, err)
		}
	}
	return nil
}

func depend(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		_, err := Read(path)
		return err
	}
	entries, err := List(path)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		// Not filepath.Join, which would clean the path.
		if err := depend(path + string(filepath.Separator) + entry); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Read reads a file, on which the test depends from then on.
func Read(path string) ([]byte, error) {
	note("open", path)
	return os.ReadFile(path)
}

// List returns the names in a folder, except Go tests. From then on the test depends on which names
// there are, and not, as after os.ReadDir, on when each of these files was changed.
func List(dir string) ([]string, error) {
	note("stat", dir)
	if _, err := os.Stat(dir); err != nil {
		return nil, err
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	folder := os.NewFile(uintptr(fd), dir)
	names, err := folder.Readdirnames(-1)
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, "_test.go") })
	slices.Sort(names)
	return names, errors.Join(err, folder.Close())
}
