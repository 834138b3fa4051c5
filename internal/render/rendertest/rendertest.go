// Package rendertest has the agent's program, as it is shipped, render for tests. A test's
// own program, with the race detector, maps too much memory of its own to be held to a limit.
package rendertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
)

// built is where the agent was compiled to, if it was.
var built string

var agent = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pipeops-render-")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "pipeops-agent")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/pipeops/pipeops-vm-agent/cmd/agent")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return path, nil
})

// Process renders by the agent's program, which is compiled at the first call.
func Process(t testing.TB) render.Process {
	t.Helper()
	path, err := agent()
	require.NoError(t, err)
	return render.Process{Command: []string{path, render.Argument}}
}

// Remove removes what was compiled: for the end of TestMain.
func Remove() { _ = os.RemoveAll(built) }
