package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTypecheck_FindsPlatformError(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":               "module example.com/m\n\ngo 1.24\n",
		"main.go":              "package main\n\nimport \"example.com/m/part\"\n\nfunc main() { part.Do() }\n",
		"part/part.go":         "package part\n\nfunc Do() { platform() }\n",
		"part/part_windows.go": "package part\n\nfunc platform() { _ = missing }\n",
		"part/part_other.go":   "//go:build !windows\n\npackage part\n\nfunc platform() {}\n",
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "")

	var out strings.Builder
	assert.NoError(t, run(&out, "linux/amd64,darwin/arm64", []string{"."}))
	assert.Empty(t, out.String())
	assert.Error(t, run(&out, "linux/amd64,windows/amd64", []string{"."}))
	assert.Contains(t, out.String(), "windows/amd64")
	assert.Contains(t, out.String(), "part_windows.go:3:23: undefined: missing")
	assert.NotContains(t, out.String(), "linux/amd64")
}

func TestTypecheck_RefusesInvalidPlatform(t *testing.T) {
	assert.ErrorContains(t, run(&strings.Builder{}, "windows", []string{"."}), `"windows" is no OS/ARCH`)
	assert.ErrorContains(t, run(&strings.Builder{}, "windows/amd64", nil), "name the packages")
}
