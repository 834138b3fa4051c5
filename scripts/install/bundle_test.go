package main

import (
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBundle_VerifiesFiles has a site that replaces a file of k3s together with
// its list of checksums.
func TestBundle_VerifiesFiles(t *testing.T) {
	contents := map[string]string{"k3s": "FAKE k3s", "install.sh": "FAKE installer", "k3s-airgap-images-amd64.tar.zst": "FAKE images"}
	settings := map[string]string{"k3s": "PIPEOPS_K3S_SHA256", "install.sh": "PIPEOPS_K3S_INSTALL_SHA256", "k3s-airgap-images-amd64.tar.zst": "PIPEOPS_K3S_IMAGES_SHA256"}
	site := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := filepath.Base(r.URL.Path)
		switch content, found := contents[name]; {
		case found:
			fmt.Fprint(w, content)
		case strings.Contains(name, "sha256sum"):
			for name, content := range contents {
				fmt.Fprintf(w, "%x  %s\n", sha256.Sum256([]byte(content)), name)
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer site.Close()
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}), 0o600))
	bundle := func(unpinned string) (string, int) {
		cmd := exec.CommandContext(t.Context(), "../bundle.sh", "--version", "v1.0.0", "--output", dir)
		cmd.Env = append(os.Environ(), "PIPEOPS_MIRROR="+site.URL, "PIPEOPS_CA_FILE="+ca, "PIPEOPS_INSTALL_STATE="+dir)
		for name, setting := range settings {
			if name != unpinned {
				cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%x", setting, sha256.Sum256([]byte(contents[name]))))
			}
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			require.ErrorAs(t, err, new(*exec.ExitError), string(out))
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	said, code := bundle("")
	require.Zero(t, code, said)
	for name := range settings {
		said, code := bundle(name)
		assert.Equal(t, 6, code, "%s: %s", name, said)
		assert.Contains(t, said, name+" is not what its publisher made")
	}
}
