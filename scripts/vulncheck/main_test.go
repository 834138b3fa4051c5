package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const program = "./test/apps/pause"

// write makes a database in the form of the Go vulnerability database, with one
// vulnerability of a function of the standard library.
func write(t *testing.T, function string) (db string) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{
		"index/db.json":      `{"modified": "2026-01-01T00:00:00Z"}`,
		"index/vulns.json":   `[{"id": "GO-2026-9999", "modified": "2026-01-01T00:00:00Z"}]`,
		"index/modules.json": `[{"path": "stdlib", "vulns": [{"id": "GO-2026-9999", "modified": "2026-01-01T00:00:00Z"}]}]`,
		"ID/GO-2026-9999.json": `{"schema_version": "1.3.1", "id": "GO-2026-9999", "modified": "2026-01-01T00:00:00Z", "published": "2026-01-01T00:00:00Z",
			"summary": "made up by a test", "details": "none", "affected": [{"package": {"name": "stdlib", "ecosystem": "Go"},
			"ranges": [{"type": "SEMVER", "events": [{"introduced": "0"}]}],
			"ecosystem_specific": {"imports": [{"path": "os/signal", "symbols": ["` + function + `"]}]}}],
			"database_specific": {"url": "https://example.com/GO-2026-9999"}}`,
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	}
	return "file://" + dir
}

func TestVulncheck_FailsOnCalledVulnerability(t *testing.T) {
	suite.Release(t, "govulncheck, which make check runs, on a made-up vulnerability")
	var out bytes.Buffer
	c := check{db: write(t, "Notify"), root: "../..", packages: []string{program}, out: &out}
	require.ErrorContains(t, c.run(t.Context()), "govulncheck: exit status 3", out.String())
	assert.Contains(t, out.String(), "made up by a test")

	out.Reset()
	c.db = write(t, "Ignored") // which the program does not call
	require.NoError(t, c.run(t.Context()), out.String())
}

func TestVulncheck_NoDatabase(t *testing.T) {
	none := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(none.Close)
	for _, db := range []string{"file://" + t.TempDir(), none.URL, "https://127.0.0.1:1"} {
		var out bytes.Buffer
		c := check{db: db, root: "../..", packages: []string{program}, out: &out}
		require.NoError(t, c.run(t.Context()))
		assert.Contains(t, out.String(), "NOT CHECKED")
		c.required = true
		require.ErrorContains(t, c.run(t.Context()), "NOT CHECKED")
	}
}
