package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestScriptsAreUpToDate(t *testing.T) {
	scripts, err := assemble(stamp{})
	require.NoError(t, err)
	for name, want := range scripts {
		got, err := os.ReadFile(filepath.Join("..", name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got), "%s is stale: run `go generate ./scripts/install`", name)
	}
}

func TestAReleaseStampsItsScripts(t *testing.T) {
	dir := t.TempDir()
	sums := filepath.Join(dir, "SHA256SUMS")
	require.NoError(t, os.WriteFile(sums, nil, 0o600))
	require.NoError(t, run(dir, sums, stamp{version: "v1.2.3", controlPlane: "https://cp.example.com"}))
	text, err := os.ReadFile(filepath.Join(dir, "install.sh"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "\nRELEASE_VERSION=\"v1.2.3\"\n")
	assert.Contains(t, string(text), "\nRELEASE_CONTROL_PLANE_URL=\"https://cp.example.com\"\n")
	assert.Contains(t, string(text), "\nRELEASE_SUMS_SHA256=\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"\n")
	text, err = os.ReadFile(filepath.Join(dir, "uninstall.sh"))
	require.NoError(t, err)
	assert.Contains(t, string(text), "\nRELEASE_VERSION=\"v1.2.3\"\n")
}
