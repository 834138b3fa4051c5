// Package machine boots Debian machines for tests: a real systemd in a container
// of systemd-nspawn, on a network of its own that reaches this machine and
// nothing else. It needs root; what a machine writes is in memory and goes with it.
package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	bootTimeout = 2 * time.Minute
	stopTimeout = 20 * time.Second
	// poll is how often is looked where nothing can be waited for.
	poll = 50 * time.Millisecond
)

// Machine is a booted machine.
type Machine struct {
	// Name is its host name.
	Name string
	// Address is its own; the network's Host is at the other end.
	Address string

	dir    string
	nspawn *exec.Cmd
	ended  chan struct{}
	leader int
	log    string
}

// Options say what machine to boot.
type Options struct {
	Name  string
	Suite string // of Debian: bullseye, bookworm, trixie
	// Share is a folder of this machine that it sees, read-only, under the same path.
	Share   string
	Network *Network
}

// Boot boots a machine. Its root file system is made first, once for all.
func Boot(ctx context.Context, o Options) (m *Machine, err error) {
	base, err := Rootfs(ctx, o.Suite, os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pipeops-machine-"+o.Name+"-")
	if err != nil {
		return nil, err
	}
	m = &Machine{Name: o.Name, dir: dir, log: filepath.Join(dir, "boot.log"), ended: make(chan struct{})}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := m.boot(ctx, base, o); err != nil {
		text, _ := os.ReadFile(m.log)
		return nil, errors.Join(fmt.Errorf("boot %s (%s): %w\n%s", o.Name, o.Suite, err, lastLines(text, 15)), m.Down())
	}
	return m, nil
}

func (m *Machine) boot(ctx context.Context, base string, o Options) error {
	if err := m.mount(base); err != nil {
		return err
	}
	// No name server: a name is not found, and at once.
	if err := errors.Join(m.WriteFile("/etc/hostname", []byte(o.Name+"\n"), 0o644), m.WriteFile("/etc/resolv.conf", []byte("nameserver 127.0.0.1\n"), 0o644)); err != nil {
		return err
	}
	log, err := os.Create(m.log)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // nspawn has its own
	args := []string{"-q", "-D", m.Root(), "--machine=" + o.Name, "--hostname=" + o.Name, "--register=no", "--keep-unit", "--boot",
		"--private-network", "--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe",
		// systemd of Debian 13 wants to be asked for control groups of version 1.
		"--setenv=SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"}
	if o.Share != "" {
		args = append(args, "--bind-ro="+o.Share)
	}
	m.nspawn = exec.Command("systemd-nspawn", args...) //nolint:noctx // Down ends it
	m.nspawn.Stdout, m.nspawn.Stderr = log, log
	// It must not outlive the tests, whatever ends them.
	m.nspawn.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := m.start(); err != nil {
		return fmt.Errorf("start systemd-nspawn: %w", err)
	}
	if m.leader, err = m.awaitLeader(ctx); err != nil {
		return err
	}
	if m.Address, err = o.Network.attach(ctx, m.leader); err != nil {
		return err
	}
	return m.awaitBoot(ctx)
}

// start starts nspawn and waits for its end.
func (m *Machine) start() error {
	if err := m.nspawn.Start(); err != nil {
		m.nspawn = nil
		return err
	}
	go func() {
		defer close(m.ended)
		_ = m.nspawn.Wait()
	}()
	return nil
}

// mount lays a file system in memory over the one that all machines share.
func (m *Machine) mount(base string) error {
	memory := filepath.Join(m.dir, "memory")
	for _, dir := range []string{memory, m.Root()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", memory, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	upper, work := filepath.Join(memory, "upper"), filepath.Join(memory, "work")
	if err := errors.Join(os.Mkdir(upper, 0o755), os.Mkdir(work, 0o755)); err != nil {
		return err
	}
	options := "lowerdir=" + base + ",upperdir=" + upper + ",workdir=" + work
	if err := unix.Mount("overlay", m.Root(), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	return nil
}

// awaitLeader finds the machine's process 1: nspawn's only child that is.
func (m *Machine) awaitLeader(ctx context.Context) (pid int, err error) {
	err = m.eventually(ctx, "process 1 starts", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.nspawn.Process.Pid))
		for _, child := range strings.Fields(string(children)) {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(comm)) == "systemd" {
				pid, _ = strconv.Atoi(child)
			}
		}
		return pid != 0
	})
	return pid, err
}

func (m *Machine) awaitBoot(ctx context.Context) error {
	return m.eventually(ctx, "it has booted", func() bool {
		out, _ := m.Command(ctx, "systemctl", "is-system-running").Output()
		state := strings.TrimSpace(string(out))
		return state == "running" || state == "degraded"
	})
}

func (m *Machine) eventually(ctx context.Context, what string, check func() bool) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for !check() {
		select {
		case <-m.ended:
			return fmt.Errorf("systemd-nspawn ended before %s", what)
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// Root is the machine's root folder, as this machine sees it.
func (m *Machine) Root() string { return filepath.Join(m.dir, "root") }

// Command is a command in the machine, as root, with a plain environment.
func (m *Machine) Command(ctx context.Context, args ...string) *exec.Cmd {
	enter := []string{"--target", strconv.Itoa(m.leader), "--all", "--", "env", "-i",
		"HOME=/root", "LANG=C.UTF-8", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// WriteFile writes a file of the machine.
func (m *Machine) WriteFile(path string, content []byte, mode os.FileMode) error {
	inside := filepath.Join(m.Root(), path)
	if err := os.MkdirAll(filepath.Dir(inside), 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(inside, content, mode), os.Chmod(inside, mode))
}

// Down ends the machine and leaves nothing of it.
func (m *Machine) Down() error {
	var errs []error
	if m.nspawn != nil {
		if m.leader != 0 {
			_ = unix.Kill(m.leader, unix.SIGKILL) // the kernel ends the rest
		}
		_ = m.nspawn.Process.Signal(syscall.SIGTERM)
		select {
		case <-m.ended:
		case <-time.After(stopTimeout):
			errs = append(errs, m.nspawn.Process.Kill())
			<-m.ended
		}
	}
	for _, path := range []string{m.Root(), filepath.Join(m.dir, "memory")} {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	return errors.Join(append(errs, os.RemoveAll(m.dir))...)
}

func lastLines(text []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
