// Package cgroup gives a test cluster its own control group, which becomes the root of the
// cluster's cgroup namespace, on version 1 and version 2 of the kernel's interface. The kubelet
// sets limits, not this package.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	mountPoint = "/sys/fs/cgroup"
	procsFile  = "cgroup.procs"
)

// Group is one cluster's control group: a directory in each hierarchy.
type Group struct {
	V2   bool     `json:"v2"`
	Dirs []string `json:"dirs"`
}

// Plan returns where the group called name goes, so that the places can be noted down before they
// exist.
func Plan(name string) (Group, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(mountPoint, &stat); err != nil {
		return Group{}, fmt.Errorf("no cgroup file system at %s: %w", mountPoint, err)
	}
	if stat.Type == unix.CGROUP2_SUPER_MAGIC {
		// At the root: a systemd scope must not have groups below it that systemd
		// does not know.
		return Group{V2: true, Dirs: []string{filepath.Join(mountPoint, name)}}, nil
	}
	hierarchies, err := ownHierarchies()
	if err != nil {
		return Group{}, err
	}
	var group Group
	for _, h := range hierarchies {
		group.Dirs = append(group.Dirs, filepath.Join(h.dir(), name))
	}
	return group, nil
}

// Create creates the directories.
func (g Group) Create() error {
	if g.V2 {
		return createV2(mountPoint, g.Dirs[0])
	}
	for _, dir := range g.Dirs {
		if err := createV1(dir); err != nil {
			return fmt.Errorf("create control group: %w", err)
		}
	}
	return nil
}

// Enter moves the calling process, and with it its later children, into the
// group.
func (g Group) Enter() error {
	for _, dir := range g.Dirs {
		if err := write(filepath.Join(dir, procsFile), "0"); err != nil {
			return fmt.Errorf("enter control group: %w", err)
		}
	}
	return nil
}

// Remove deletes the group with everything that the kubelet created in it. Its processes must have
// been killed; the kernel may take a moment to forget them.
func (g Group) Remove(ctx context.Context) error {
	var failed error
	if wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(context.Context) (bool, error) {
		failed = nil
		for _, dir := range g.Dirs {
			failed = errors.Join(failed, removeTree(dir))
		}
		return failed == nil, nil
	}) != nil {
		return fmt.Errorf("remove control group: %w", failed)
	}
	return nil
}

// removeTree removes the deepest directories first. The files in them cannot be
// removed and need not be.
func removeTree(root string) error {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	for _, dir := range slices.Backward(dirs) {
		if rmErr := unix.Rmdir(dir); rmErr != nil && !errors.Is(rmErr, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("rmdir %s: %w", dir, rmErr))
		}
	}
	return err
}

// hierarchy is one of version 1's mounted trees, named by its controllers.
type hierarchy struct{ controllers, path string }

func (h hierarchy) dir() string {
	base := filepath.Join(mountPoint, strings.TrimPrefix(h.controllers, "name="))
	dir := filepath.Join(base, h.path)
	if _, err := os.Stat(dir); err != nil {
		return base // the path is the host's, and we see a container's part
	}
	return dir
}

// mountOptions returns what mount(2) wants to hear to mount this very hierarchy.
func (h hierarchy) mountOptions() string {
	if strings.HasPrefix(h.controllers, "name=") {
		return "none," + h.controllers
	}
	return h.controllers
}

// ownHierarchies reads which version 1 hierarchies there are, and where in them
// this process is.
func ownHierarchies() ([]hierarchy, error) {
	content, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find control groups: %w", err)
	}
	return parseHierarchies(string(content)), nil
}

func parseHierarchies(content string) []hierarchy {
	var found []hierarchy
	for line := range strings.Lines(content) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) == 3 && fields[1] != "" { // empty: version 2's line
			found = append(found, hierarchy{controllers: fields[1], path: fields[2]})
		}
	}
	return found
}

func createV1(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// A new cpuset is empty, and admits no process until it is filled.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		inherited, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := write(filepath.Join(dir, file), string(inherited)); err != nil {
			return err
		}
	}
	return nil
}

func write(file, content string) error {
	return os.WriteFile(file, []byte(content), 0o644) // a kernel interface
}
