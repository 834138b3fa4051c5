package web

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAssets_ScriptsPinned compares the embedded files with the list that fetch.sh
// wrote.
func TestAssets_ScriptsPinned(t *testing.T) {
	dir := filepath.Join("assets", "vendor")
	list, err := os.Open(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	defer func() { _ = list.Close() }()
	pinned := map[string]string{}
	for lines := bufio.NewScanner(list); lines.Scan(); {
		if sum, name, ok := strings.Cut(lines.Text(), "  "); ok && !strings.HasPrefix(sum, "#") {
			pinned[name] = sum
		}
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		sum := sha256.Sum256(text)
		assert.Equal(t, pinned[e.Name()], hex.EncodeToString(sum[:]), e.Name())
		delete(pinned, e.Name())
	}
	assert.Empty(t, pinned, "every pinned file is there")
	licence, err := os.ReadFile(filepath.Join(dir, "htmx.LICENSE"))
	require.NoError(t, err)
	assert.Contains(t, string(licence), "Permission to use")
}

// TestTemplates_NoInlineScript keeps what the Content-Security-Policy would block
// out of every page, and addresses of other hosts too.
func TestTemplates_NoInlineScript(t *testing.T) {
	found := 0
	for _, pattern := range []string{"templates/*.html", "*/templates/*.html"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		for _, file := range files {
			found++
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, banned := range []string{"<style", " style=", " onclick=", " onload=", " hx-on", "javascript:", "https://", "http://", "<script>"} {
				assert.NotContains(t, string(text), banned, file)
			}
		}
	}
	assert.Greater(t, found, 10)
	style, err := assetFiles.ReadFile("assets/style.css")
	require.NoError(t, err)
	assert.NotContains(t, string(style), "url(")
	assert.NotContains(t, string(style), "@import")
}
