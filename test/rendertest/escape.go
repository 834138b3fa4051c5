package rendertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// Escape returns the path of the program in the folder escape.
func Escape(t testing.TB) string {
	t.Helper()
	path, err := programs.Program{Package: "./test/rendertest/escape"}.Build(t.Context())
	require.NoError(t, err)
	return path
}
