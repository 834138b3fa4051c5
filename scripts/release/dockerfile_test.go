package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestDockerfile_BasesPinned: what a Dockerfile starts from is nothing, its own stage,
// or an image by digest.
func TestDockerfile_BasesPinned(t *testing.T) {
	stages, seen := map[string]bool{"scratch": true}, 0
	for line := range strings.Lines(string(read(t, "../..", "Dockerfile"))) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		assert.NotContains(t, line, "# syntax=", "a frontend is a base too")
		if words[0] != "FROM" {
			continue
		}
		seen++
		if strings.HasPrefix(words[1], "--platform=") {
			words = words[1:]
		}
		assert.True(t, stages[words[1]] || strings.Contains(words[1], "@sha256:"), line)
		if len(words) == 4 {
			stages[words[3]] = true
		}
	}
	assert.Equal(t, 5, seen)
}
