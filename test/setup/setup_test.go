package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCompile_NamesPackages(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOWORK", "off")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.test/m\n"), 0o600))
	source := filepath.Join(dir, "main.go")
	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() {}\n"), 0o600))
	c := compile{patterns: []string{"./..."}}
	require.NoError(t, c.run(t.Context(), &bytes.Buffer{}))

	require.NoError(t, os.WriteFile(source, []byte("package main\n\nfunc main() { undefined() }\n"), 0o600))
	require.ErrorContains(t, c.run(t.Context(), &bytes.Buffer{}), "undefined: undefined")
}

func TestCompile_Counts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines := make(chan string)
		go func() {
			defer close(lines)
			lines <- "example.test/m/a"
			lines <- "example.test/m/a_test [example.test/m/a.test]"
			lines <- "# example.test/m/b"
			lines <- "b.go:1:1: syntax error"
			time.Sleep(11 * time.Second)
		}()
		var out bytes.Buffer
		said := follow(lines, 7, &out)
		require.Equal(t, "# example.test/m/b\nb.go:1:1: syntax error", said)
		require.Equal(t, "   2 of 7 packages compiled, 10s\n", out.String())
	})
}

func TestWarm_Heartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		done := make(chan error, 1)
		go func() {
			time.Sleep(21 * time.Second)
			done <- nil
		}()
		var out bytes.Buffer
		require.NoError(t, beat(done, &out))
		require.Equal(t, "   at work for 10s\n   at work for 20s\n", out.String())
	})
	var out bytes.Buffer
	require.NoError(t, warm("sh", "-c", "echo findings")(t.Context(), &out))
	require.Empty(t, out.String(), "that is told by who runs it next")
	require.ErrorContains(t, warm("sh", "-c", "echo broken; exit 3")(t.Context(), &out), "broken")
}

func TestUsage(t *testing.T) {
	require.Error(t, run(t.Context(), &bytes.Buffer{}, nil))
	require.Error(t, run(t.Context(), &bytes.Buffer{}, []string{"everything"}))
}

func TestPackages_NotReinstalled(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, packages("sh")(t.Context(), &out))
	require.Empty(t, out.String())
}
