package command

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReady(t *testing.T) {
	dataDir := filepath.Join(newData(t).Dir, "data") // not there yet
	ask := func(args ...string) (code int, stdout, stderr string) {
		var out, errs bytes.Buffer
		code = execute(t.Context(), append([]string{"ready"}, args...), streams{&out, &errs})
		return code, out.String(), errs.String()
	}
	code, _, stderr := ask("--data-dir", dataDir)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "\n  fix: name the directory that it serves from with --data-dir, or add --any-certificate\n")

	p := startServe(t, dataDir)
	defer p.stop(t)
	code, stdout, stderr := ask("--data-dir", dataDir, "--url", p.api, "--wait", "1m")
	require.Equal(t, 0, code, stderr)
	assert.Regexp(t, `(?m)^database +ok: answers$`, stdout)

	var said bytes.Buffer
	require.Equal(t, 0, execute(t.Context(), []string{"version", "--data-dir", dataDir, "--url", p.api}, streams{&said, &said}))
	assert.Contains(t, said.String(), "control plane "+version+" at "+p.api)

	code, _, stderr = ask("--any-certificate", "--url", p.api)
	assert.Equal(t, 0, code, stderr)

	shared := newData(t).Dir // its CA is in the database, and serve wrote the certificates
	text, err := os.ReadFile(filepath.Join(dataDir, "ca.pem"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(shared, "trust.pem"), text, 0o600))
	code, _, stderr = ask("--data-dir", shared, "--url", p.api)
	assert.Equal(t, 0, code, stderr)

	other := filepath.Join(newData(t).Dir, "other")
	defer startServe(t, other).stop(t)
	code, _, stderr = ask("--data-dir", other, "--url", p.api)
	assert.Equal(t, exitFailure, code)
	assert.Contains(t, stderr, "does not answer", "it is not the control plane of that data directory")
}
