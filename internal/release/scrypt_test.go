package release

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// TestParseSecretKey_EncryptedByMinisign uses the key file as minisign wrote it, with its own scrypt.
func TestParseSecretKey_EncryptedByMinisign(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 1 GiB of memory for some seconds")
	}
	program, err := programs.Program{Package: "./internal/release/testdata/sign"}.Build(t.Context())
	require.NoError(t, err)
	require.NoError(t, inputs.Depend("internal/release/testdata/encrypted.key")) // which it reads

	data := read(t, "golden.json")
	sign := exec.CommandContext(t.Context(), program, "testdata/encrypted.key", passphrase)
	sign.Stdin = bytes.NewReader(data)
	out, err := sign.Output()
	require.NoError(t, err)
	public, signature, _ := strings.Cut(string(out), "\n")
	assert.Equal(t, encryptedPublic, public)
	_, err = trust(t, encryptedPublic).Open(data, []byte(signature))
	require.NoError(t, err)
}
