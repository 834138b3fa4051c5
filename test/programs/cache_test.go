package programs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// longAgo is when the files were changed: Go takes no result from its cache that depends on one
// that was changed in the last two seconds.
var longAgo = time.Now().Add(-time.Hour).Truncate(time.Second)

// module is a copy of testdata/module, with the tests of which it is that Go's cache is tested.
type module struct {
	dir string
	env []string
}

func newModule(t *testing.T) *module {
	t.Helper()
	top := t.TempDir()
	m := &module{dir: filepath.Join(top, "module")}
	require.NoError(t, os.CopyFS(m.dir, os.DirFS("testdata/module")))
	// Of the same test in another place, Go would look at that one's files.
	write(t, filepath.Join(m.dir, "use", "here_test.go"), fmt.Sprintf("package use\n\nconst _ = %q\n", top))
	write(t, filepath.Join(top, "outside", "chart", "values.txt"), "hello!\n")
	write(t, filepath.Join(top, "go.work"), "go 1.26.0\n\nuse (\n\t./module\n\t"+inputs.Root()+"\n)\n")
	require.NoError(t, filepath.WalkDir(top, func(path string, _ os.DirEntry, err error) error {
		require.NoError(t, err)
		return os.Chtimes(path, longAgo, longAgo)
	}))
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	m.env = append(os.Environ(), "GOWORK="+filepath.Join(top, "go.work"), "XDG_CACHE_HOME="+filepath.Join(top, "cache"),
		"GOCACHE="+string(cache[:len(cache)-1]), "GOFLAGS=-trimpath", "CGO_ENABLED=0")
	return m
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// test has Go test the module, and returns what it prints.
func (m *module) test(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "./use")
	cmd.Dir, cmd.Env = m.dir, m.env
	said, _ := cmd.CombinedOutput()
	return string(said)
}

// becomes changes a file, in another second, until restore.
func (m *module) becomes(t *testing.T, name, content string) (restore func()) {
	t.Helper()
	path := filepath.Join(m.dir, name)
	before, err := os.ReadFile(path)
	isNew := os.IsNotExist(err)
	require.True(t, err == nil || isNew, err)
	write(t, path, content)
	require.NoError(t, os.Chtimes(path, longAgo.Add(time.Minute), longAgo.Add(time.Minute)))
	return func() {
		if isNew {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Chtimes(filepath.Dir(path), longAgo, longAgo))
			return
		}
		write(t, path, string(before))
		require.NoError(t, os.Chtimes(path, longAgo, longAgo))
	}
}

// TestInputs_RerunTests: go runs a test again when its inputs change, and only then.
func TestInputs_RerunTests(t *testing.T) {
	suite.Release(t, "each kind of input that makes Go run a test again")
	m := newModule(t)
	first := m.test(t)
	require.Contains(t, first, "ok ")
	require.NotContains(t, first, "(cached)")
	require.Contains(t, m.test(t), "(cached)")

	for name, content := range map[string]string{
		"greet/words/words.go":        "package words\n\nvar Greeting = \"broken\"\n",
		"greet/end.txt":               "?\n",
		"greet/words/new.go":          "package words\n\nfunc init() { Greeting = \"broken\" }\n",
		"early.txt":                   "broken\n",
		"script.sh":                   "#!/bin/sh\necho broken\n",
		"../outside/chart/values.txt": "broken\n",
	} {
		restore := m.becomes(t, name, content)
		assert.Contains(t, m.test(t), "--- FAIL: TestUse", name)
		restore()
	}
	// None of which anything is made.
	for _, name := range []string{"greet/main_test.go", "Makefile", "notes.txt"} {
		m.becomes(t, name, "package main\n\n// changed\n")
	}
	assert.Contains(t, m.test(t), "(cached)")
}
