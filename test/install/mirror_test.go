package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// TestInstall_RegistryMirror checks what is written for k3s, and when it is written again.
// TestInstall_Offline uses a mirror on a machine.
func TestInstall_RegistryMirror(t *testing.T) {
	file := filepath.Join(t.TempDir(), "registries.yaml")
	run := func(mirror string) string {
		cmd := exec.CommandContext(t.Context(), "bash", "-euc", `. scripts/install/k3s.sh
K3S_REGISTRIES="$FILE"
put() { [[ $2 == 0600 ]] && cat >"$1"; }
k3s_registries_right && echo right || k3s_registries`)
		cmd.Dir = harness.Root()
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "FILE=" + file, "PIPEOPS_REGISTRY_MIRROR=" + mirror}
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	assert.Equal(t, "right\n", run(""), "nothing is asked for")
	assert.NoFileExists(t, file)
	for _, mirror := range []string{"https://mirror.example.com:5000", "https://other.example.com"} {
		assert.Empty(t, run(mirror))
		assert.Equal(t, "mirrors:\n  \"*\":\n    endpoint:\n      - \""+mirror+"\"\n", string(read(t, file)))
		assert.Equal(t, "right\n", run(mirror))
	}
}
