package gitserver

import (
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stretchr/testify/require"
)

// Signed signs the commits from now on, and the tags of tag -s, with a new SSH key. It returns the
// public key.
func (r *Repository) Signed() string {
	r.t.Helper()
	key := filepath.Join(r.t.TempDir(), "key")
	out, err := exec.CommandContext(r.t.Context(), "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ann@example.com", "-f", key).CombinedOutput()
	require.NoError(r.t, err, string(out))
	for name, value := range map[string]string{"gpg.format": "ssh", "user.signingkey": key, "commit.gpgsign": "true"} {
		r.Git("config", name, value)
	}
	public, err := os.ReadFile(key + ".pub")
	require.NoError(r.t, err)
	return string(public[:len(public)-1])
}

// Unsigned signs no commits from now on.
func (r *Repository) Unsigned() {
	r.t.Helper()
	r.Git("config", "commit.gpgsign", "false")
}
