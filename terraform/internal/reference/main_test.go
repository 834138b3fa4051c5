package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPage_UpToDate(t *testing.T) {
	want, err := page(t.Context())
	require.NoError(t, err)
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, want, string(have), "fix: cd terraform && go generate ./...")
}
