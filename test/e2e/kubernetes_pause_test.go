package e2e

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

const (
	floodLine  = 1000 // bytes
	floodLines = 4000 // a second
	// floodBytes is more than all buffers on the way hold, of which the largest is kubectl's window
	// of 4 MiB.
	floodBytes = 24 << 20
	// pausedReaders are as many, so that what the agent would keep of them shows.
	pausedReaders = 4
	// heldMemory is what the agent may grow by meanwhile: 160 KiB for each of them
	// (docs/reference/limits.md), and what its other work takes.
	heldMemory = 16 << 20
)

// pauses has readers of a log stop, as a terminal after Ctrl-S does, while the app writes on. The
// bytes stay in the kubelet, and the stream goes on when its reader does.
func (s *shell) pauses(t *testing.T, image string) {
	s.write(t, "flood.yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: flood}\nspec:\n  containers:\n"+
		"  - {name: flood, image: %s, args: [-lines, %q, -line-size, %q]}\n", image, fmt.Sprint(floodLines), fmt.Sprint(floodLine)))
	s.run(t, "kubectl apply -f flood.yaml && kubectl wait --for condition=Ready pod/flood --timeout 2m")
	readers := make([]*bufio.Scanner, pausedReaders)
	first := 0
	for i := range readers {
		readers[i] = s.followed(t, "flood")
		first = numberOf(t, readers[i])
	}
	before, err := sys.AgentMemory(t.Context())
	require.NoError(t, err)
	newest := 0
	await.Until(t, "the app has written more than all buffers hold", func() bool {
		out, err := sys.Cluster.Kubectl(t.Context(), "-n", namespace, "logs", "flood", "--tail", "1")
		if err != nil || len(out) == 0 {
			return false
		}
		newest, err = payload.Number(strings.TrimSpace(string(out)), floodLine)
		return err == nil && (newest-first)*floodLine > floodBytes
	})
	after, err := sys.AgentMemory(t.Context())
	require.NoError(t, err)
	t.Logf("the app wrote %d MiB; the agent grew by %d KiB", (newest-first)*floodLine>>20, (after-before)>>10)
	assert.Less(t, after-before, int64(heldMemory))
	for _, reader := range readers {
		for n := first; n <= newest; {
			n = numberOf(t, reader)
		}
	}
	s.run(t, "kubectl delete pod flood --now")
}

// followed is the output of kubectl that follows a log, through a pipe that nobody empties but its
// reader.
func (s *shell) followed(t *testing.T, pod string) *bufio.Scanner {
	t.Helper()
	cmd := s.command(t.Context(), "exec kubectl logs -f --tail 1 "+pod)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
	})
	return bufio.NewScanner(out)
}

// numberOf reads the next line that is whole: where the kubelet has rotated the log meanwhile, it
// cuts lines.
func numberOf(t *testing.T, lines *bufio.Scanner) int {
	t.Helper()
	for lines.Scan() {
		if n, err := payload.Number(lines.Text(), floodLine); err == nil {
			return n
		}
	}
	require.FailNow(t, "the log ended", "%v", lines.Err())
	return 0
}
