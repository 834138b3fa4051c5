package install

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const windowsScript = "../../scripts/install.ps1"

// linuxHalf is what install.ps1 runs in the distribution.
func linuxHalf(t *testing.T) string {
	t.Helper()
	half := regexp.MustCompile(`(?s)\$LinuxHalf = @'\n(.*?)'@\n`).FindStringSubmatch(string(read(t, windowsScript)))
	require.NotNil(t, half)
	return half[1]
}

// TestWindows_LinuxHalf runs the half of install.ps1 that is bash as wsl.exe would.
// The other half runs on Windows alone, and has not been run here.
func TestWindows_LinuxHalf(t *testing.T) {
	s, err := newSite("127.0.0.1")
	require.NoError(t, err)
	t.Cleanup(s.Close)
	script := read(t, "../../scripts/install.sh")
	files := map[string][]byte{"install.sh": script}
	s.put(releases+"v1.2.3/", "SHA256SUMS", files)
	sum := fmt.Sprintf("%x", sha256.Sum256(script))
	ca, bundle := filepath.Join(t.TempDir(), "ca.pem"), t.TempDir()
	require.NoError(t, os.WriteFile(ca, s.ca, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "install.sh"), script, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(bundle, "SHA256SUMS"), []byte(sum+"  install.sh\n"), 0o600))

	run := func(version, sum string, env ...string) (said string, code int) {
		t.Helper()
		code64 := base64.StdEncoding.EncodeToString([]byte(linuxHalf(t)))
		cmd := exec.CommandContext(t.Context(), "bash", "-c", "source <(base64 -d <<<"+code64+")", "bash", version, sum, "cluster-info", "-o", "env")
		cmd.Env = append(os.Environ(), append([]string{"PIPEOPS_MIRROR=" + s.URL + "/", "PIPEOPS_CA_FILE=" + ca}, env...)...)
		return outcome(t, cmd)
	}
	good := func(version, sum string, env ...string) {
		t.Helper()
		said, code := run(version, sum, env...)
		assert.Zero(t, code, said)
		assert.Contains(t, said, "DISTRO=")
	}
	bad := func(want int, version, sum string) {
		t.Helper()
		said, code := run(version, sum)
		assert.Equal(t, want, code, said)
		assert.NotContains(t, said, "DISTRO=")
		assert.Contains(t, said, "error: ")
		assert.Contains(t, said, "\n  fix: ")
	}
	good("v1.2.3", sum)
	assert.NotContains(t, strings.Join(s.downloads(), "\n"), "SHA256SUMS")
	good("v1.2.3", "-")
	good("v1.2.3", strings.Repeat("0", 64), "PIPEOPS_BUNDLE="+bundle)
	bad(6, "v1.2.3", strings.Repeat("0", 64))
	bad(5, "v9.9.9", sum)
	heal := s.fault(releases+"v1.2.3/install.sh", s.half(releases+"v1.2.3/install.sh"))
	bad(5, "v1.2.3", sum)
	heal()
	heal = s.fault(releases+"v1.2.3/SHA256SUMS", other)
	defer heal()
	bad(6, "v1.2.3", "-")
}

// TestWindows_PassesSettings: install.ps1 passes each setting that install.sh reads and the guide
// lists, except those without a use on Windows.
func TestWindows_PassesSettings(t *testing.T) {
	script, guide := string(read(t, windowsScript)), string(read(t, "../../docs/reference/installer.md"))
	_, rows, found := strings.Cut(guide, "\n## Settings\n")
	require.True(t, found)
	rows, _, _ = strings.Cut(rows, "\n## ")
	_, list, found := strings.Cut(script, "\n$Settings = @(\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n)")
	for _, name := range regexp.MustCompile("`([A-Z][A-Z0-9_]+)`").FindAllStringSubmatch(rows, -1) {
		switch name[1] {
		case "CLUSTER_TYPE", "KUBE_CONTEXT", "KUBECONFIG", "PIPEOPS_INSTALL_STATE", "PIPEOPS_INSTALL_LOG": // k3s, at its own places
		case "PIPEOPS_WSL_DISTRIBUTION": // Windows' own
		case "PIPEOPS_BIN_DIR": // of the command runner, for CI jobs
		default:
			assert.Regexp(t, `'`+name[1]+`(/p)?'`, list)
		}
	}
}
