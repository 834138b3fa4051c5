// Package machine boots Debian machines for tests: a real systemd, or a real OpenRC, in a container
// of systemd-nspawn, on its own network that only reaches this machine. It needs root; what a
// machine writes is in memory and disappears with it.
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
	bootTimeout = 5 * time.Minute
	stopTimeout = 20 * time.Second
	// poll is the interval of checks where no event can be waited for.
	poll = 50 * time.Millisecond
)

// Machine is a booted machine.
type Machine struct {
	// Name is its host name.
	Name string
	// Address is its own address; the network's Host is at the other end.
	Address string

	init   initSystem
	dir    string
	nspawn *exec.Cmd
	ended  chan struct{}
	leader int
	log    string
}

// Options describe the machine to boot.
type Options struct {
	Name  string
	Suite string // one of Debians, or Bookworm+OpenRC
	// Shares are files and folders of this machine that it sees, read-only: PATH, or FROM:TO.
	Shares []string
	// Network is the network to which it is attached; nil is this machine's own.
	Network *Network
}

// initSystem is a machine's process 1, and how it reports that the boot is done.
type initSystem struct {
	comm   string
	booted func(context.Context, *Machine) bool
}

var (
	systemd = initSystem{"systemd", func(ctx context.Context, m *Machine) bool {
		out, _ := m.Command(ctx, "systemctl", "is-system-running").Output()
		state := strings.TrimSpace(string(out))
		return state == "running" || state == "degraded"
	}}
	openrc = initSystem{"init", func(ctx context.Context, m *Machine) bool {
		return m.Command(ctx, "sh", "-ec", "grep -qx default /run/openrc/softlevel; test ! -e /run/openrc/rc.starting").Run() == nil
	}}
)

// Boot boots a machine. It creates the machine's root file system first, once for all machines.
func Boot(ctx context.Context, o Options) (m *Machine, err error) {
	base, err := Rootfs(ctx, o.Suite, os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pipeops-machine-"+o.Name+"-")
	if err != nil {
		return nil, err
	}
	m = &Machine{Name: o.Name, dir: dir, init: systemd, log: filepath.Join(dir, "boot.log"), ended: make(chan struct{})}
	if strings.HasSuffix(o.Suite, OpenRC) {
		m.init = openrc
	}
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
	// No name server: lookups fail, and at once.
	if err := errors.Join(m.WriteFile("/etc/hostname", []byte(o.Name+"\n"), 0o644), m.WriteFile("/etc/resolv.conf", []byte("nameserver 127.0.0.1\n"), 0o644)); err != nil {
		return err
	}
	log, err := os.Create(m.log)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // nspawn has its own
	args := []string{"-q", "-D", m.Root(), "--machine=" + o.Name, "--hostname=" + o.Name, "--register=no", "--keep-unit", "--boot",
		"--resolv-conf=off", "--timezone=off", "--link-journal=no", "--console=pipe",
		// systemd of Debian 13 needs a setting for control groups of version 1.
		"--setenv=SYSTEMD_PROC_CMDLINE=systemd.unified_cgroup_hierarchy=0 SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"}
	for _, share := range o.Shares {
		args = append(args, "--bind-ro="+share)
	}
	if o.Network != nil {
		args = append(args, "--private-network")
	}
	m.nspawn = exec.Command("systemd-nspawn", args...) //nolint:noctx // Down ends it
	m.nspawn.Stdout, m.nspawn.Stderr = log, log
	// It must not outlive the tests, however they end.
	m.nspawn.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := m.start(); err != nil {
		return fmt.Errorf("start systemd-nspawn: %w", err)
	}
	if m.leader, err = m.awaitLeader(ctx); err != nil {
		return err
	}
	if o.Network != nil {
		if m.Address, err = o.Network.attach(ctx, m.leader); err != nil {
			return err
		}
	}
	return m.eventually(ctx, "it has booted", func() bool { return m.init.booted(ctx, m) })
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

// mount mounts a file system in memory over the one that all machines share.
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

// awaitLeader finds the machine's process 1, the only child of nspawn.
func (m *Machine) awaitLeader(ctx context.Context) (pid int, err error) {
	err = m.eventually(ctx, "process 1 starts", func() bool {
		children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", m.nspawn.Process.Pid))
		for child := range strings.FieldsSeq(string(children)) {
			comm, _ := os.ReadFile("/proc/" + child + "/comm")
			if strings.TrimSpace(string(comm)) == m.init.comm {
				pid, _ = strconv.Atoi(child)
			}
		}
		return pid != 0
	})
	return pid, err
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

// Root returns the machine's root folder, as this machine sees it.
func (m *Machine) Root() string { return filepath.Join(m.dir, "root") }

// Command returns a command in the machine, as root, with a plain environment.
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
