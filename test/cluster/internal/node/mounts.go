package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/cgroup"
)

// privateDirs are the machine's directories that components write to; the
// cluster sees its own instead, kept in its directory on disk.
var privateDirs = map[string]string{"/var/lib": "var-lib", "/var/log": "var-log"}

// sysctls are the values that the kubelet requires. They belong to the whole machine. So the
// kubelet does not set them but sees files with these values.
var sysctls = map[string]string{
	"vm/overcommit_memory":      "1",
	"vm/panic_on_oom":           "0",
	"kernel/panic":              "10",
	"kernel/panic_on_oops":      "1",
	"kernel/keys/root_maxkeys":  "1000000",
	"kernel/keys/root_maxbytes": "25000000",
}

// arrangeMounts makes the mount namespace the cluster's own. dir is the
// cluster's directory on the machine.
func arrangeMounts(dir string, config Config) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := mountRun(dir, config.Parts); err != nil {
		return err
	}
	for target, source := range privateDirs {
		if err := bindPrivate(filepath.Join(Dir, source), target); err != nil {
			return err
		}
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := cgroup.Mount(config.CgroupV2); err != nil {
		return err
	}
	if err := errors.Join(shadowSysctls(), silenceDNS()); err != nil {
		return err
	}
	// As systemd has it: pods that mount the node's root ask for it.
	return unix.Mount("", "/", "", unix.MS_SHARED, "")
}

// mountRun puts a fresh file system over /run with the cluster's directory and
// its parts in it. They are opened first: they may lie in what gets covered.
func mountRun(dir string, parts map[string]string) error {
	sources := map[string]string{Dir: dir}
	for name, source := range parts {
		sources[filepath.Join(PartsDir, name)] = source
	}
	opened := make(map[string]int, len(sources))
	for target, source := range sources {
		fd, err := unix.Open(source, unix.O_PATH|unix.O_CLOEXEC|unix.O_DIRECTORY, 0)
		if err != nil {
			return fmt.Errorf("open %s: %w", source, err)
		}
		opened[target] = fd
	}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount /run: %w", err)
	}
	for target, fd := range opened {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		if err := bind("/proc/self/fd/"+strconv.Itoa(fd), target); err != nil {
			return err
		}
		if err := unix.Close(fd); err != nil {
			return err
		}
	}
	return nil
}

// bindPrivate binds with shared propagation, which the kubelet requires of the
// directory that holds the pods' volumes.
func bindPrivate(source, target string) error {
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	if err := bind(source, target); err != nil {
		return err
	}
	return unix.Mount("", target, "", unix.MS_SHARED|unix.MS_REC, "")
}

func shadowSysctls() error {
	for name, value := range sysctls {
		target := filepath.Join("/proc/sys", name)
		if _, err := os.Stat(target); err != nil {
			continue // not in this kernel
		}
		source := filepath.Join("/run/sysctl", name)
		if err := os.MkdirAll(filepath.Dir(source), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(source, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := bind(source, target); err != nil {
			return err
		}
	}
	return nil
}

// silenceDNS lets nothing in the cluster wait for the machine's DNS servers,
// which it has no route to: a refused query fails at once.
func silenceDNS() error {
	source := filepath.Join(Dir, "resolv.conf")
	if err := os.WriteFile(source, []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
		return err
	}
	target, err := filepath.EvalSymlinks("/etc/resolv.conf")
	if err != nil {
		return nil //nolint:nilerr // missing, or a link into the /run of the machine: as good
	}
	return bind(source, target)
}

func bind(source, target string) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", source, target, err)
	}
	return nil
}
