package atomicfile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
)

func TestWrite_Replaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for _, text := range []string{"old", "new"} {
		require.NoError(t, atomicfile.Write(path, []byte(text)))
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, text, string(got))
	}
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o600), info.Mode().Perm())
	onlyFile(t, path)
}

// TestWrite_FailureKeepsOldFile and leaves no temporary one.
func TestWrite_FailureKeepsOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	require.NoError(t, atomicfile.Write(path, []byte("old")))
	require.ErrorIs(t, atomicfile.Place(path, []byte("new"), os.Link), fs.ErrExist)
	failed := errors.New("no")
	require.ErrorIs(t, atomicfile.Place(path, []byte("new"), func(string, string) error { return failed }), failed)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(got))
	onlyFile(t, path)
	require.ErrorIs(t, atomicfile.Write(filepath.Join(t.TempDir(), "none", "a"), nil), fs.ErrNotExist)
}

func onlyFile(t *testing.T, path string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	assert.Equal(t, filepath.Base(path), entries[0].Name())
}

// TestFill_Replaces the file at once, with the mode that it was given.
func TestFill_Replaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	require.NoError(t, atomicfile.Write(path, []byte("old")))
	failed := errors.New("no")
	require.ErrorIs(t, atomicfile.Fill(path, func(f *os.File) error {
		_, err := f.WriteString("half")
		return errors.Join(err, failed)
	}), failed)
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "old", string(got))

	require.NoError(t, atomicfile.Fill(path, func(f *os.File) error {
		_, err := f.WriteString("new")
		return errors.Join(err, f.Chmod(0o700))
	}))
	got, err = os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, "new", string(got))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o700), info.Mode().Perm())
	onlyFile(t, path)
}
