package programs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inCache has the store be one of the test's own. Go's cache stays where it is.
func inCache(t *testing.T) {
	t.Helper()
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	require.NoError(t, err)
	t.Setenv("GOCACHE", strings.TrimSpace(string(cache)))
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
}

// made is a file that stands for a compiled program.
func made(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "made")
	require.NoError(t, os.WriteFile(file, []byte(content), 0o755))
	return file
}

// end does what the end of this process would do to the programs that it uses.
func end(t *testing.T) {
	t.Helper()
	used.Range(func(content, lock any) bool {
		used.Delete(content)
		return assert.NoError(t, lock.(*os.File).Close())
	})
}

func TestStore_KeepsUsed(t *testing.T) {
	inCache(t)
	s, err := openStore(t.Context(), []string{"request"})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	var files []string
	add := func() {
		name := fmt.Sprint(len(files))
		file, err := s.add(sources{}, name, made(t, name), "hello")
		require.NoError(t, err)
		files = append(files, file)
	}
	for range keep + 2 {
		add()
	}
	for _, file := range files {
		assert.FileExists(t, file)
	}
	end(t)
	add()
	for i, file := range files {
		if i < len(files)-keep {
			assert.NoDirExists(t, filepath.Dir(file))
		} else {
			assert.FileExists(t, file)
		}
	}
	end(t)
}

func TestStore_KilledBuild(t *testing.T) {
	inCache(t)
	s, err := openStore(t.Context(), []string{"request"})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.close()) }()
	killed, _, err := s.making()
	require.NoError(t, err)
	next, remove, err := s.making()
	require.NoError(t, err)
	assert.NoDirExists(t, filepath.Dir(killed))
	assert.DirExists(t, filepath.Dir(next))
	require.NoError(t, remove())
	assert.NoDirExists(t, filepath.Dir(next))
}

func TestStore_CompilesOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a program")
	}
	inCache(t)
	t.Cleanup(func() { end(t) })
	var files [4]string
	var wg sync.WaitGroup
	for i := range files {
		wg.Go(func() {
			// Another name each time: this process remembers what it has asked for.
			file, err := Program{Package: "./test/apps/pause", Name: fmt.Sprint("pause-", i)}.Build(t.Context())
			assert.NoError(t, err)
			files[i] = file
		})
	}
	wg.Wait()
	first, err := os.Stat(files[0])
	require.NoError(t, err)
	for i, file := range files {
		assert.Equal(t, filepath.Join(filepath.Dir(files[0]), fmt.Sprint("pause-", i)), file)
		info, err := os.Stat(file)
		require.NoError(t, err)
		assert.True(t, os.SameFile(first, info), "%s was compiled again", file)
	}
}
