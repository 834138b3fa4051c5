package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReference_UpToDate(t *testing.T) {
	files, err := render("../..")
	require.NoError(t, err)
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join("../..", name))
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s is stale: run `go generate ./docs`", name)
	}
	_, err = put([]byte("text"), "calls", "")
	require.Error(t, err)
}

func TestAsyncAPI_Compatible(t *testing.T) {
	files, err := render("../..")
	require.NoError(t, err)
	require.NoError(t, checkCompatible("../..", files["docs/asyncapi.json"]))
	changed := strings.ReplaceAll(string(files["docs/asyncapi.json"]), `"fingerprint"`, `"id"`)
	require.ErrorContains(t, checkCompatible("../..", []byte(changed)), "fingerprint is gone")
}
