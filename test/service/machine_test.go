package service

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// patience is how long a test waits for what takes seconds.
const patience = 2 * time.Minute

// machine is a booted systemd in a container of systemd-nspawn: this machine's
// /usr, and everything else its own. It shares this machine's network, so that
// it reaches what the test has started.
type machine struct {
	root   string // its file system
	leader int    // its process 1
}

// folders are those of a machine that nobody has used yet.
var folders = []string{"dev", "etc/systemd/system", "opt", "proc", "root", "run", "sys", "tmp", "usr", "var", "local/bin"}

// boot starts a machine, which ends with the test. binds are FROM:TO.
func boot(t *testing.T, binds ...string) *machine {
	t.Helper()
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("boots a machine, which needs root")
	}
	nspawn, err := exec.LookPath("systemd-nspawn")
	require.NoError(t, err, "fix: apt-get install systemd-container")
	m := &machine{root: t.TempDir()}
	require.NoError(t, os.Chmod(m.root, 0o755)) // the agent's user has to get into it
	m.furnish(t)
	args := []string{"--directory", m.root, "--bind-ro=/usr", "--bind=" + m.root + "/local:/usr/local",
		"--register=no", "--keep-unit", "--quiet", "--machine=pipeops-service-" + strconv.Itoa(os.Getpid()),
		"--resolv-conf=off", "--console=pipe", "--boot"}
	for _, b := range binds {
		args = append(args, "--bind-ro="+b)
	}
	// Only what every machine starts, and none of the services that are installed here.
	args = append(args, "--", "--unit=basic.target")
	var console bytes.Buffer
	cmd := exec.Command(nspawn, args...) // ended below
	cmd.Stdout, cmd.Stderr = &console, &console
	require.NoError(t, cmd.Start())
	var ended sync.WaitGroup
	ended.Go(func() { _ = cmd.Wait() })
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // takes the machine with it
		ended.Wait()
		if t.Failed() {
			t.Log(console.String())
		}
	})
	m.await(t, "the machine is up", func(ctx context.Context) error {
		if m.leader == 0 {
			if m.leader = childOf(cmd.Process.Pid); m.leader == 0 {
				return fmt.Errorf("no process 1 yet")
			}
		}
		out, err := m.run(ctx, "", "systemctl is-system-running")
		if s := strings.TrimSpace(out); s != "running" && s != "degraded" {
			m.leader = childOf(cmd.Process.Pid)
			return fmt.Errorf("it is %q: %w", s, err)
		}
		return nil
	})
	return m
}

// furnish makes the little that a machine has of its own.
func (m *machine) furnish(t *testing.T) {
	t.Helper()
	for _, dir := range folders {
		require.NoError(t, os.MkdirAll(filepath.Join(m.root, dir), 0o755))
	}
	for _, link := range []string{"bin", "sbin", "lib", "lib64"} {
		require.NoError(t, os.Symlink("usr/"+link, filepath.Join(m.root, link)))
	}
	for file, text := range map[string]string{
		"etc/machine-id": strings.Repeat("5e1f", 8) + "\n",
		"etc/os-release": "ID=test\nNAME=test\n",
		"etc/passwd":     "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/usr/sbin/nologin\n",
		"etc/group":      "root:x:0:\nnogroup:x:65534:\n",
		// Only systemd knows dynamic users.
		"etc/nsswitch.conf": "passwd: files systemd\ngroup: files systemd\nhosts: files dns\n",
		"etc/hosts":         "127.0.0.1 localhost\n",
	} {
		m.write(t, file, text, 0o644)
	}
}

func (m *machine) write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(m.root, file)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), mode))
}

// childOf is the first child of a process, or 0.
func childOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	child, _ := strconv.Atoi(first)
	return child
}

// run runs a shell script in the machine and answers what it printed.
func (m *machine) run(ctx context.Context, stdin, script string, env ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "nsenter", "--target", strconv.Itoa(m.leader), "--mount", "--uts", "--ipc", "--pid", "--cgroup",
		"--root", "--", "/usr/bin/env", "-i", "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root")
	cmd.Args = append(cmd.Args, env...)
	cmd.Args = append(cmd.Args, "/bin/sh", "-euc", script)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// must is run for what has to work.
func (m *machine) must(t *testing.T, script string, env ...string) string {
	t.Helper()
	return m.mustWith(t, "", script, env...)
}

func (m *machine) mustWith(t *testing.T, stdin, script string, env ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := m.run(ctx, stdin, script, env...)
	if err != nil {
		log, _ := m.run(context.WithoutCancel(ctx), "", "systemctl --no-pager status pipeops-agent; journalctl --no-pager -n 40")
		require.NoError(t, err, "%s\n%s\n%s", script, out, log)
	}
	return out
}

func (m *machine) await(t *testing.T, what string, ok func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, what, ok))
}

// property is one of systemd's about the agent's service.
func (m *machine) property(t *testing.T, name string) string {
	t.Helper()
	return strings.TrimSpace(m.must(t, "systemctl show --value -p "+name+" pipeops-agent"))
}
