package boundedfile_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/boundedfile"
)

func TestRead_RefusesLarger(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, []byte("12345"), 0o600))
	text, err := boundedfile.Read(file, 5)
	require.NoError(t, err)
	assert.Equal(t, "12345", string(text))
	_, err = boundedfile.Read(file, 4)
	require.EqualError(t, err, file+" is larger than 4 bytes")
	text, err = boundedfile.Head(file, 4)
	require.NoError(t, err)
	assert.Equal(t, "1234", string(text))
	_, err = boundedfile.Head(file+"x", 4)
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReadSecret_RefusesReadableByOthers(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, []byte("12345"), 0o600))
	text, err := boundedfile.Secret(file, 5)
	require.NoError(t, err)
	assert.Equal(t, "12345", string(text))
	_, err = boundedfile.Secret(file, 4)
	require.EqualError(t, err, file+" is larger than 4 bytes")
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o620} {
		require.NoError(t, os.Chmod(file, mode))
		_, err = boundedfile.Secret(file, 5)
		require.EqualError(t, err, file+" can be read by others (fix: chmod 600 "+file+")")
	}
	_, err = boundedfile.Secret(dir, 5)
	require.ErrorContains(t, err, "is a directory")
	_, err = boundedfile.Secret(file+"x", 5)
	require.ErrorIs(t, err, fs.ErrNotExist)
}
