// Package golden compares committed files with what they are made from. With the flag -update,
// tests write them again.
package golden

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the files again that the test compares")

// Updating reports whether files are written again.
func Updating() bool { return *update }

// Check compares a file with what it is made into, or writes it. The command makes it.
func Check(t testing.TB, file, want, command string) {
	t.Helper()
	if Updating() {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, want, string(got), "%s is stale; run: %s", file, command)
}
