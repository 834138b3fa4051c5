package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAMistakeNamesTheHelpOfItsCommand(t *testing.T) {
	w := newWorld(t)
	code, _, stderr := w.run(t, "secret", "set", "--bogus")
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, "see `pipeops-runner secret set --help`")

	code, _, stderr = w.run(t, "agents", "--credentials", filepath.Join(t.TempDir(), "missing.json"))
	assert.Equal(t, exitUsage, code)
	assert.Contains(t, stderr, "pipeops-controlplane runner create")
	assert.NotContains(t, stderr, "--help", "it is no mistake in how the command is written")
}

func TestVersionFlag(t *testing.T) {
	w := newWorld(t)
	code, stdout, _ := w.run(t, "--version")
	assert.Equal(t, exitOK, code)
	assert.Contains(t, stdout, version)
}
