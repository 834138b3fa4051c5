//go:build linux

package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// copies copies into a real pod and out again through a real tunnel, and measures the memory
// that this takes. The image has one program, which stands in for tar.
func (s *shop) copies(t *testing.T) {
	ref, err := s.env.Cluster.LoadProgram(t.Context(), cluster.Program{Package: "./test/apps/hello", Name: "tar", Ref: "apps.test/tar"})
	require.NoError(t, err)
	s.write(t, "files.yaml", "image: "+ref+"\nvolumes: [{name: data, mountPath: /data, emptyDir: {}}, {name: logs, mountPath: /var/log/app, emptyDir: {}},\n"+
		"  {name: srv, mountPath: /srv, emptyDir: {}}, {name: etc, mountPath: /etc, emptyDir: {}}]\n")
	s.run(t, "pipeops-runner deploy shop files -f files.yaml")
	const size = 64<<20 + 5
	file, err := os.Create(filepath.Join(s.dir, "big"))
	require.NoError(t, err)
	_, err = io.CopyN(file, rand.NewChaCha8([32]byte{3}), size)
	require.NoError(t, err)
	require.NoError(t, file.Close())
	runtime.GC()
	before := heap()
	for _, args := range []string{"big files:/data/copy", "files:/data/copy back"} {
		resident, most := s.copy(t, args)
		assert.Positive(t, resident)
		assert.Less(t, resident, int64(128<<20), "the command streams")
		assert.Less(t, most-before, int64(160<<20), "the agent streams")
	}
	s.run(t, "cmp big back")

	// A tree, with its links and modes.
	s.run(t, `mkdir -p tree/sub && echo page >tree/sub/page && ln -s sub/page tree/index && chmod 640 tree/sub/page
pipeops-runner cp shop tree files:/data/
pipeops-runner cp shop files:/data/tree again
test "$(readlink again/index)" = sub/page && test "$(cat again/index)" = page && test "$(stat -c %a again/sub/page)" = 640`)

	s.run(t, `mkdir site && echo page >site/index.html && echo one >app.log && echo setting >app.conf
pipeops-runner cp shop app.log files:/var/log/app/
pipeops-runner cp shop app.conf files:/etc/`)
	examples, err := harness.CommandLine("cp")
	require.NoError(t, err)
	for _, line := range examples {
		t.Log(line + "\n" + s.run(t, strings.Replace(line, " web:", " files:", 1)))
	}
	s.run(t, `test "$(cat logs/app.log)" = one && pipeops-runner cp shop files:/srv/site back-again && test "$(cat back-again/index.html)" = page`)
	s.run(t, `! pipeops-runner cp shop files:/data/nothing . 2>said; grep -q 'nothing' said`)
	s.run(t, "pipeops-runner delete shop files")
}

func (s *shop) write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

// heap is what this process has on its heap, in bytes, what is not collected yet included.
// That is no less with the race detector, whose own memory is several times as much.
func heap() int64 {
	of := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(of)
	return int64(of[0].Value.Uint64())
}

// copy returns how much memory the command has at most, and how much heap this process has
// meanwhile, in bytes.
func (s *shop) copy(t *testing.T, args string) (resident, most int64) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(s.dir, "bin", "pipeops-runner"), strings.Fields("cp shop "+args)...)
	cmd.Dir, cmd.Env = s.dir, s.vars
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	looking := time.NewTicker(20 * time.Millisecond)
	defer looking.Stop()
	for {
		select {
		case err := <-done:
			require.NoError(t, err, "%s\nthe agent's complaints:\n%s", &said, s.rec.complaints())
			return resident, most
		case <-looking.C: // not rusage: a process begins with its parent's there
			resident, most = max(resident, peak(cmd.Process.Pid)), max(most, heap())
		}
	}
}

// peak is the most memory that a process has had, in bytes; 0 when it is gone.
func peak(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, line, _ := strings.Cut(string(text), "VmHWM:")
	var kib int64
	_, _ = fmt.Sscan(line, &kib)
	return kib << 10
}
