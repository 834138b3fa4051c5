package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount shows the cgroup namespace that the process is in at the usual place,
// for the kubelet and the container runtime. /sys must be a fresh mount.
func Mount(v2 bool) error {
	if v2 {
		if err := unix.Mount("cgroup", mountPoint, "cgroup2", 0, ""); err != nil {
			return fmt.Errorf("mount cgroup2: %w", err)
		}
		// The root of the namespace is an ordinary group to the kernel: pods get
		// controllers only when init has moved out of it.
		return delegate(mountPoint, "init")
	}
	if err := unix.Mount("cgroup", mountPoint, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount %s: %w", mountPoint, err)
	}
	hierarchies, err := ownHierarchies()
	if err != nil {
		return err
	}
	for _, h := range hierarchies {
		if err := mountV1(h); err != nil {
			return err
		}
	}
	return nil
}

func mountV1(h hierarchy) error {
	name := strings.TrimPrefix(h.controllers, "name=")
	dir := filepath.Join(mountPoint, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("cgroup", dir, "cgroup", 0, h.mountOptions()); err != nil {
		return fmt.Errorf("mount cgroup %s: %w", h.controllers, err)
	}
	controllers := strings.Split(name, ",")
	if len(controllers) == 1 {
		return nil
	}
	for _, controller := range controllers { // cpu -> cpu,cpuacct
		if err := os.Symlink(name, filepath.Join(mountPoint, controller)); err != nil {
			return err
		}
	}
	return nil
}
