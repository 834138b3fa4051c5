package machine

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// packages are what a machine has beyond the minimum: what the tested tools need of any server.
var packages = []string{"bash", "ca-certificates", "curl", "iproute2", "procps", "kmod"}

// layout is increased if root file systems are created differently.
const layout = "1"

// Bookworm is the Debian of tests that run on any.
const Bookworm = "bookworm"

// Debians are the supported suites.
var Debians = []string{Bookworm, "bullseye", "trixie"}

// OpenRC is the suffix of a suite's name for that suite with OpenRC instead of systemd:
// bookworm-openrc.
const OpenRC = "-openrc"

// openRC is installed afterwards: debootstrap takes sysv-rc with sysvinit-core, the first of its
// alternatives, which conflicts with OpenRC.
const openRC = "apt-get -q update && apt-get -q -y install --no-install-recommends sysvinit-core openrc"

//go:embed install.sh
var installScript string

// Rootfs returns a suite's root file system. If it does not exist, debootstrap creates it, which
// takes a minute or two and is reported on out.
func Rootfs(ctx context.Context, suite string, out io.Writer) (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("test machines need root")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache: %w (set HOME or XDG_CACHE_HOME)", err)
	}
	dir := filepath.Join(cache, "pipeops-test", "machines")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	unlock, err := filelock.Wait(ctx, filepath.Join(dir, suite+".lock"), nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = unlock() }()
	root := filepath.Join(dir, suite+"-"+layout)
	if err := install(ctx, out); err != nil {
		return "", err
	}
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	return root, debootstrap(ctx, suite, root, out)
}

// debootstrap creates a root file system beside its place, and moves it there as a whole.
func debootstrap(ctx context.Context, suite, root string, out io.Writer) error {
	started, half := time.Now(), root+".half"
	fmt.Fprintf(out, "making a Debian %s for test machines (a minute or two, once)\n", suite)
	if err := os.RemoveAll(half); err != nil {
		return err
	}
	debian, withOpenRC := strings.CutSuffix(suite, OpenRC)
	include := slices.Clone(packages)
	if !withOpenRC {
		include = append(include, "systemd", "systemd-sysv", "dbus")
	}
	if err := quietly(ctx, "debootstrap", "--variant=minbase", "--include="+strings.Join(include, ","), debian, half); err != nil {
		return err
	}
	if withOpenRC {
		if err := quietly(ctx, "chroot", half, "env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "sh", "-ec", openRC); err != nil {
			return err
		}
	}
	if err := os.Rename(half, root); err != nil {
		return err
	}
	fmt.Fprintf(out, "Debian %s made in %s\n", suite, time.Since(started).Round(time.Second))
	return nil
}

// quietly runs a command and shows its last lines only if it fails.
func quietly(ctx context.Context, name string, args ...string) error {
	var log bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, 5*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // nothing else would end it
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, lastLines(log.Bytes(), 10))
	}
	return nil
}

// install installs debootstrap and systemd-nspawn if they are missing.
func install(ctx context.Context, out io.Writer) error {
	_, bootstrap := exec.LookPath("debootstrap")
	_, nspawn := exec.LookPath("systemd-nspawn")
	if bootstrap == nil && nspawn == nil {
		return nil
	}
	fmt.Fprintln(out, "installing debootstrap and systemd-nspawn from Debian")
	cmd := exec.CommandContext(ctx, "sh", "-s")
	cmd.Stdin = strings.NewReader(installScript)
	if log, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install debootstrap and systemd-container: %w\n%s", err, lastLines(log, 10))
	}
	return nil
}
