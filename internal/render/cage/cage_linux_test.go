package cage_test

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/rendertest"
)

// report is what test/rendertest/escape prints.
type report struct {
	Missing []string
	Tries   map[string]string // attempt to the error's name, empty if it succeeded
}

// attempt lets escape try to get out, in a process with a file of this one.
func attempt(t *testing.T, command ...string) report {
	t.Helper()
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	listening := func(network, address string) net.Addr {
		l, err := net.Listen(network, address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = l.Close() })
		return l.Addr()
	}
	port := listening("tcp4", "127.0.0.1:0").(*net.TCPAddr).Port
	socket, abstract := listening("unix", filepath.Join(dir, "s")), listening("unix", "@"+filepath.Base(dir)+t.Name())
	witnesses, err := json.Marshal(map[string]any{
		"token": write("token", "secret"), "folder": dir, "victim": write("victim", ""),
		"port": port, "socket": socket.String(), "abstract": abstract.String(),
	})
	require.NoError(t, err)
	inherited, err := os.Open(write("inherited", "secret"))
	require.NoError(t, err)
	defer func() { _ = inherited.Close() }()

	cmd := exec.CommandContext(t.Context(), command[0], append(command[1:], string(witnesses))...)
	cmd.ExtraFiles, cmd.Stderr = []*os.File{inherited}, os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(out, &r))
	return r
}

// needs skips the test if the kernel lacks a part.
func needs(t *testing.T, r report, parts ...string) {
	t.Helper()
	for _, missing := range r.Missing {
		for _, part := range parts {
			if strings.HasPrefix(missing, part) {
				t.Skipf("this kernel has no %s", missing)
			}
		}
	}
}

// TestCage_BlocksEscapes expects that each attempt works outside, and that the kernel refuses it
// inside.
func TestCage_BlocksEscapes(t *testing.T) {
	escape := rendertest.Escape(t)
	free := attempt(t, escape, "free")
	for name, refusal := range free.Tries {
		assert.Empty(t, refusal, "outside of the cage: %s", name)
	}
	for name, command := range map[string][]string{
		"all of it": {escape, "caged"}, "without Landlock": {escape, "without", "landlock", escape, "caged"},
	} {
		t.Run(name, func(t *testing.T) {
			caged := attempt(t, command...)
			needs(t, caged, "seccomp")
			assert.Greater(t, len(caged.Tries), len(free.Tries)+20, "system calls were tried")
			for try, refusal := range caged.Tries {
				assert.Equal(t, "EPERM", refusal, try)
			}
		})
	}
}

func TestLandlock_Alone(t *testing.T) {
	escape := rendertest.Escape(t)
	caged := attempt(t, escape, "without", "seccomp", escape, "caged")
	assert.Equal(t, []string{"seccomp (function not implemented)"}, withPrefix(caged.Missing, "seccomp"))
	needs(t, caged, "Landlock")
	for _, try := range []string{"make a folder", "remove a file"} {
		assert.Equal(t, "EACCES", caged.Tries[try], try)
	}
	version, _, _ := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if version >= 4 {
		assert.Equal(t, "EACCES", caged.Tries["connect a TCP socket"])
	}
	if version >= 6 {
		assert.Equal(t, "EPERM", caged.Tries["signal the parent"])
	}
}

// TestCage_OpensNothingOnAnyKernel has neither Landlock nor seccomp.
func TestCage_OpensNothingOnAnyKernel(t *testing.T) {
	escape := rendertest.Escape(t)
	caged := attempt(t, escape, "without", "landlock,seccomp", escape, "caged")
	assert.Len(t, caged.Missing, 2)
	for try, refusal := range caged.Tries {
		switch strings.Fields(try)[0] {
		case "read", "write", "list", "dial", "listen", "run":
			assert.Contains(t, []string{"EMFILE", "EBADF", "ESPIPE"}, refusal, try)
		}
	}
}

func withPrefix(all []string, prefix string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, prefix) })
}
