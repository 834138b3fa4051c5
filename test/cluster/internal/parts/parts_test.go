package parts

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func write(t *testing.T, root, name, content string) {
	t.Helper()
	path := filepath.Join(root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func TestKey_FollowsContent(t *testing.T) {
	root := t.TempDir()
	write(t, root, "part/go.mod", "module part")
	write(t, root, "part/main.go", "package main")
	inputs := []string{"part"}
	key := func(salt ...string) string {
		key, err := hashFiles(root, inputs, salt...)
		require.NoError(t, err)
		return key
	}
	first := key()
	require.Equal(t, first, key(), "the same content")
	require.NotEqual(t, first, key("-X version=2"), "other flags")
	require.NotEqual(t, key("a", "bc"), key("ab", "c"))

	write(t, root, "part/main_test.go", "package main")
	write(t, root, "part/README.md", "words")
	write(t, root, "part/nested/go.mod", "module nested")
	write(t, root, "part/nested/main.go", "package main")
	require.Equal(t, first, key(), "tests, documentation and other modules")

	write(t, root, "part/go.mod", "module part // changed")
	require.NotEqual(t, first, key())

	inputs = []string{"missing"}
	_, err := hashFiles(root, inputs)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestBuild_NotRepeated(t *testing.T) {
	dir := t.TempDir()
	var made atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			b := &builder{dir: dir, progress: newProgress(&bytes.Buffer{})}
			got, err := b.cached(t.Context(), "part", "key", "a part", time.Second, func(_ context.Context, tmp string) error {
				made.Add(1)
				return os.WriteFile(filepath.Join(tmp, "binary"), []byte("x"), 0o600)
			})
			if err != nil || got != filepath.Join(dir, "part-key") {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, 1, made.Load())
	require.FileExists(t, filepath.Join(dir, "part-key", "binary"))
}

func TestPrune_KeepsLatestUsed(t *testing.T) {
	dir := t.TempDir()
	names := []string{"part-a", "part-b", "part-c", "part-d", "other-a"}
	for i, name := range names {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(path, 0o755))
		used := time.Now().Add(-time.Duration(i) * time.Hour)
		require.NoError(t, os.Chtimes(path, used, used))
	}
	require.NoError(t, prune(dir, "part"))
	for i, name := range names {
		_, err := os.Stat(filepath.Join(dir, name))
		require.Equal(t, i == 3, os.IsNotExist(err), name)
	}
}
