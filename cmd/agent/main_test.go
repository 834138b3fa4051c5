package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMainPackage: `go build cmd/agent/main.go` builds the agent.
func TestMainPackage(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	assert.Equal(t, []string{"main.go", "main_test.go"}, files)
}
