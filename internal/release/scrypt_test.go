package release

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestAKeyThatMinisignEncryptedSigns uses the key file as minisign wrote it, with its own scrypt.
func TestAKeyThatMinisignEncryptedSigns(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 1 GiB of memory for some seconds")
	}
	program := filepath.Join(t.TempDir(), "sign")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./testdata/sign")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	said, err := build.CombinedOutput()
	require.NoError(t, err, "%s", said)

	data := read(t, "golden.json")
	sign := exec.CommandContext(t.Context(), program, "testdata/encrypted.key", passphrase)
	sign.Stdin = bytes.NewReader(data)
	out, err := sign.Output()
	require.NoError(t, err)
	public, signature, _ := strings.Cut(string(out), "\n")
	assert.Equal(t, encryptedPublic, public)
	_, err = Open(data, []byte(signature), keys(t, encryptedPublic)...)
	require.NoError(t, err)
}
