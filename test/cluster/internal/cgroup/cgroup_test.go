package cgroup

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestParseHierarchies(t *testing.T) {
	const content = "4:memory:/user.slice\n3:cpu,cpuacct:/\n1:name=systemd:/user.slice/a:b\n0::/user.slice\n"
	got := parseHierarchies(content)
	require.Equal(t, []hierarchy{
		{"memory", "/user.slice"}, {"cpu,cpuacct", "/"}, {"name=systemd", "/user.slice/a:b"},
	}, got)
	require.Equal(t, "cpu,cpuacct", got[1].mountOptions())
	require.Equal(t, "none,name=systemd", got[2].mountOptions())
}

// TestDelegateV2 runs on the version 2 hierarchy, which machines with version 1
// have too, though without controllers.
func TestDelegateV2(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("makes control groups, as root")
	}
	root := ""
	for _, dir := range []string{mountPoint, mountPoint + "/unified"} {
		var stat unix.Statfs_t
		if unix.Statfs(dir, &stat) == nil && stat.Type == unix.CGROUP2_SUPER_MAGIC {
			root = dir
		}
	}
	if root == "" {
		t.Skip("no version 2 hierarchy")
	}
	parent := filepath.Join(root, "pipeops-test-v2-"+strconv.Itoa(os.Getpid()))
	require.NoError(t, os.Mkdir(parent, 0o755))
	group := Group{V2: true, Dirs: []string{parent}}
	sleeper := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, sleeper.Start())
	t.Cleanup(func() {
		_ = sleeper.Process.Kill()
		_ = sleeper.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, group.Remove(ctx))
	})
	pid := strconv.Itoa(sleeper.Process.Pid)
	require.NoError(t, write(filepath.Join(parent, procsFile), pid))

	require.NoError(t, moveProcesses(parent, filepath.Join(parent, "init")))
	procs, err := os.ReadFile(filepath.Join(parent, "init", procsFile))
	require.NoError(t, err)
	require.Equal(t, pid+"\n", string(procs))

	// With no process of its own left the group can delegate.
	require.NoError(t, createV2(parent, filepath.Join(parent, "cluster")))
	require.DirExists(t, filepath.Join(parent, "cluster"))
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, group.Remove(short), unix.EBUSY, "while a process is in it")
}
