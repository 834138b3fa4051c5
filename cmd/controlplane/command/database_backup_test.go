package command

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// TestDatabaseBackup_BesideLoad runs the documented commands, and the sqlite3 tool, while a control
// plane writes. sqlite3 once found no locks of the control plane, and removed its write-ahead log.
func TestDatabaseBackup_BesideLoad(t *testing.T) {
	doc := documented(t)
	t.Chdir(t.TempDir())
	p := startServe(t, "data")
	run := func(script string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script).CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
		return string(out)
	}
	var load sync.WaitGroup
	var mu sync.Mutex
	var made []string
	done := make(chan struct{})
	load.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			name := fmt.Sprintf("load-%d", n)
			out, err := exec.CommandContext(t.Context(), "pipeops-controlplane", "token", "create", "--name", name, "--data-dir", "./data").CombinedOutput()
			if !assert.NoError(t, err, "%s", out) {
				return
			}
			mu.Lock()
			made = append(made, name)
			mu.Unlock()
		}
	})
	soFar := func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string{}, made...)
	}
	for range 20 {
		before := soFar()
		run(doc["backup-sqlite"])
		run(doc["restore-sqlite"])
		assert.Subset(t, tokensIn(t, "restored/controlplane.db"), before)
		run(`sqlite3 data/controlplane.db ".backup tool.db"`)
		assert.Subset(t, tokensIn(t, "tool.db"), before)
	}
	close(done)
	load.Wait()
	p.kill(t)
	assert.Subset(t, tokensIn(t, "data/controlplane.db"), soFar())
	files, err := filepath.Glob("registry.db*")
	require.NoError(t, err)
	assert.Equal(t, []string{"registry.db", "registry.db.1", "registry.db.2", "registry.db.3", "registry.db.4", "registry.db.5", "registry.db.6", "registry.db.7"}, files)
	p = startServe(t, "restored")
	p.awaitReady(t, "")
	p.stop(t)
}

// tokensIn returns the names of the tokens in a database.
func tokensIn(t *testing.T, file string) (names []string) {
	t.Helper()
	s, err := store.Open(t.Context(), file)
	require.NoError(t, err)
	tokens, err := s.Tokens(t.Context())
	require.NoError(t, err)
	for _, token := range tokens {
		names = append(names, token.Name)
	}
	require.NoError(t, s.Close())
	return names
}

func TestDatabaseBackup_RefusesWhatIsDamaged(t *testing.T) {
	dir := t.TempDir()
	data, backup := filepath.Join(dir, "controlplane.db"), filepath.Join(dir, "backup.db")
	s, err := store.Open(t.Context(), data)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, os.WriteFile(backup, []byte("the last good one"), 0o600))
	require.ErrorContains(t, datadir.Data{Dir: dir}.Backup(t.Context(), data, 0), "is the database itself")
	content, err := os.ReadFile(data)
	require.NoError(t, err)
	for i := len(content) / 2; i < len(content); i++ {
		content[i] ^= 0xff
	}
	require.NoError(t, os.WriteFile(data, content, 0o600))
	require.ErrorContains(t, store.Backup(t.Context(), data, backup), "back up the database")
	kept, err := os.ReadFile(backup)
	require.NoError(t, err)
	assert.Equal(t, "the last good one", string(kept))
}
