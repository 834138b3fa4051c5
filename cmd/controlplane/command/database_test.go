package command

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// What the tests share.
var (
	databases postgres.Shared
	rabbit    broker.Shared
)

// newURL is the URL of a new database on the chosen engine; SQLite has none.
func newURL(t testing.TB) string {
	t.Helper()
	if postgres.Chosen(t) == postgres.SQLite {
		return ""
	}
	return databases.Database(t).URL()
}

// newData is a data directory with a new database on the chosen engine, which commands find in the
// environment until the next one is made.
func newData(t *testing.T) datadir.Data {
	t.Helper()
	data := datadir.Data{Dir: t.TempDir(), Database: store.Postgres{URL: newURL(t)}}
	t.Setenv(flags.EnvDatabase, data.Database.URL)
	return data
}

// documented are the shell commands of docs/operator/database.md, by the name beside them.
func documented(t *testing.T) map[string]string {
	t.Helper()
	blocks, err := harness.Named("docs/operator/database.md", "sh")
	require.NoError(t, err)
	return blocks
}

// TestDatabaseDocs_Commands runs docs/operator/database.md: a control plane begins with SQLite,
// moves to PostgreSQL, serves, is backed up and restored.
func TestDatabaseDocs_Commands(t *testing.T) {
	server := databases.Server(t)
	doc := documented(t)
	dir := t.TempDir()
	t.Chdir(dir)
	ca, err := os.ReadFile(server.CAFile())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile("ca.crt", ca, 0o600))
	const password = "letters-and-digits"
	run := func(script string, env ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Env = append(append(append(os.Environ(), server.AdminEnviron()...), "PASSWORD="+password), env...)
		out, err := cmd.CombinedOutput()
		assert.NotContains(t, string(out), password)
		return string(out), err
	}
	must := func(script string, env ...string) string {
		t.Helper()
		out, err := run(script, env...)
		require.NoError(t, err, "%s\n%s", script, out)
		return out
	}

	must(doc["create"])
	t.Cleanup(func() {
		assert.NoError(t, server.Run(context.WithoutCancel(t.Context()), "DROP DATABASE IF EXISTS pipeops WITH (FORCE)", "DROP DATABASE IF EXISTS restored WITH (FORCE)", "DROP ROLE pipeops"))
	})
	p := startServe(t, "data")
	must("pipeops-controlplane token create --name old --data-dir ./data")
	out, err := run(doc["move"])
	require.Error(t, err, "a control plane serves it: "+out)
	p.stop(t)

	file, serve, _ := strings.Cut(strings.TrimSpace(doc["serve"]), "\n")
	at := "127.0.0.1:" + strconv.Itoa(server.Port())
	require.Contains(t, file, "db.example.com:5432")
	must(strings.Replace(file, "db.example.com:5432", at, 1))
	require.Contains(t, must(doc["move"]), "controlplane.db.moved")
	out, err = run(doc["move"])
	require.Error(t, err)
	assert.Contains(t, out, "has no controlplane.db to copy")

	args := strings.Fields(serve)
	require.Equal(t, []string{"pipeops-controlplane", "serve"}, args[:2])
	p = startServe(t, "data", args[2:]...)
	p.awaitReady(t, "")
	out = must(doc["token"])
	assert.Contains(t, out, "old")
	assert.Contains(t, out, "fleet")
	out, err = run("pipeops-controlplane token create --offline --data-dir ./data")
	require.Error(t, err, "forgets the database")
	assert.Contains(t, out, "is postgres://pipeops@"+at+"/pipeops, not SQLite; give --database")

	must(doc["backup"])
	p.stop(t)
	must("psql -c 'CREATE DATABASE restored OWNER pipeops'")
	require.Contains(t, doc["restore"], "--dbname=pipeops")
	must(strings.Replace(doc["restore"], "--dbname=pipeops", "--dbname=restored", 1), "PGUSER=pipeops", "PGPASSWORD="+password)
	must("sed s#/pipeops\\$#/restored# database-url >restored-url")
	out = must("pipeops-controlplane token list --offline --data-dir ./restored --database-file ./restored-url --database-ca ./ca.crt")
	assert.Contains(t, out, "fleet")

	must(doc["key"])
	several := strings.Fields(strings.ReplaceAll(doc["several"], "\\\n", " "))
	require.Equal(t, []string{"pipeops-controlplane", "serve", "--data-dir", "./data"}, several[:4])
	args = slices.Concat(several[4:len(several)-1], []string{"127.0.0.1:8445", "--peer-listen", "127.0.0.1:0"})
	require.Equal(t, "--advertise-peer", several[len(several)-2])
	p = startServe(t, "data", args...)
	require.FileExists(t, "data/ca.pem.moved")
	second := startServe(t, "data2", args...)
	second.awaitReady(t, "ok: 2 serve the database")
	out = must("pipeops-controlplane token list --data-dir ./data2")
	assert.Contains(t, out, "fleet")
	out, err = run("pipeops-controlplane token list --offline --data-dir ./data --database-file ./database-url --database-ca ./ca.crt")
	require.Error(t, err)
	assert.Contains(t, out, "give --ca-key-file")
	p.kill(t)
	second.awaitReady(t, "this one leads")
	second.stop(t)
}
