package contract_test

import (
	_ "embed"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:embed runner.py
var program string

// TestRunner_InPython knows nothing but the documents, and nothing of Go.
func TestRunner_InPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine")
	}
	s := start(t)
	s.allowAll(t)
	file := filepath.Join(t.TempDir(), "runner.json")
	require.NoError(t, s.credentials.Write(file))
	cmd := exec.CommandContext(t.Context(), python, "-", file)
	cmd.Stdin = strings.NewReader(program)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	var told struct{ Calls, Succeeded int }
	require.NoError(t, json.Unmarshal(out, &told), string(out))
	assert.GreaterOrEqual(t, told.Calls, 60, "each call of the document that is not a WebSocket")
	assert.GreaterOrEqual(t, told.Succeeded, 25, "without nodes, metrics and charts")
}
