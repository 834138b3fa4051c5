package ca

import (
	"bytes"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzFile: whatever is in the file, it is read back as it is written or refused.
func FuzzFile(f *testing.F) {
	file := filepath.Join(f.TempDir(), "ca.pem")
	c, err := Open(file, Domains{Trust: "trust", Agents: "agents"}, LogFunc(func(Record) error { return nil }), time.Now)
	require.NoError(f, err)
	for _, step := range []Step{Start, Sign, Finish, Start, Abort} {
		text, err := inFile(file).Load()
		require.NoError(f, err)
		f.Add(text)
		_, err = c.Take(step)
		require.NoError(f, err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parse(text)
		if err != nil {
			return
		}
		first, err := s.encode()
		require.NoError(t, err)
		again, err := parse(first)
		require.NoError(t, err)
		second, err := again.encode()
		require.NoError(t, err)
		require.True(t, bytes.Equal(first, second))
	})
}
