package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// required are the controllers without which the kubelet does not start.
var required = []string{"cpu", "cpuset", "memory", "pids"}

// createV2 makes a group below root with all of root's controllers.
func createV2(root, dir string) error {
	if err := delegate(root, "pipeops-test-host"); err != nil {
		return fmt.Errorf("create control group: %w", err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("create control group: %w", err)
	}
	return nil
}

// delegate hands root's controllers down to its children. A group other than
// the machine's own root may not do that while it has processes itself, so then
// they move into a child called leaf first. It takes more than one try when a
// process forks, or is just about to end, meanwhile.
func delegate(root, leaf string) error {
	const (
		tries    = 100
		interval = 10 * time.Millisecond
	)
	var err error
	for range tries {
		if err = enableControllers(root); !errors.Is(err, unix.EBUSY) {
			return err
		}
		if err := moveProcesses(root, filepath.Join(root, leaf)); err != nil {
			return err
		}
		time.Sleep(interval)
	}
	return err
}

// enableControllers enables one controller after the other: together they are refused if a single
// one is unavailable, and not all are needed.
func enableControllers(root string) error {
	available, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for controller := range strings.FieldsSeq(string(available)) {
		err := write(filepath.Join(root, "cgroup.subtree_control"), "+"+controller)
		if err != nil && (errors.Is(err, unix.EBUSY) || slices.Contains(required, controller)) {
			return fmt.Errorf("enable controller %s: %w", controller, err)
		}
	}
	return nil
}

func moveProcesses(from, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	pids, err := os.ReadFile(filepath.Join(from, procsFile))
	if err != nil {
		return err
	}
	for pid := range strings.FieldsSeq(string(pids)) {
		if pid == "0" { // of another namespace: not ours to move
			continue
		}
		// A process may have ended since the list was read.
		if err := write(filepath.Join(to, procsFile), pid); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
