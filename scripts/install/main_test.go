package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScripts_UpToDate(t *testing.T) {
	scripts, err := assemble(stamp{})
	require.NoError(t, err)
	for name, want := range scripts {
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got), "%s is stale: run `go generate ./scripts/install`", name)
	}
}

func TestScripts_StampedByRelease(t *testing.T) {
	dir := t.TempDir()
	manifest := filepath.Join(dir, "agent.yaml")
	require.NoError(t, os.WriteFile(manifest, nil, 0o600))
	require.NoError(t, run(dir, []string{manifest, manifest}, stamp{version: "v1.2.3", keys: "RWQ+/=", controlPlane: "https://cp.example.com"}))
	script := func(name string) string {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		return string(text)
	}
	install := script("install.sh")
	for _, line := range []string{
		`RELEASE_VERSION="v1.2.3"`, `RELEASE_KEYS="RWQ+/="`, `RELEASE_CONTROL_PLANE_URL="https://cp.example.com"`,
		`RELEASE_SHA256SUMS="e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 agent.yaml,e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 agent.yaml"`,
	} {
		assert.Contains(t, install, "\n"+line+"\n")
	}
	for _, name := range []string{"join-worker.sh", "uninstall.sh"} {
		assert.Contains(t, script(name), "\nRELEASE_VERSION=\"v1.2.3\"\nRELEASE_INSTALL_SHA256=\""+sum([]byte(install))+"\"\n")
	}
	assert.Contains(t, script("install.ps1"), "\n$RELEASE_VERSION = \"v1.2.3\"\n$RELEASE_INSTALL_SHA256 = \""+sum([]byte(install))+"\"\n")
}
