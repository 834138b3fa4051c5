// Package releasetest signs releases for tests, with a key that everybody has.
package releasetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// Public keys: of the one who signs, and of somebody else.
const (
	PublicKey = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2"
	OtherKey  = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3" // of minisign's own releases
)

// Sign answers a manifest and its signature, as they are published.
func Sign(t testing.TB, m release.Manifest) (manifest, signature []byte) {
	t.Helper()
	file, err := os.ReadFile(filepath.Join(harness.Root(), "internal", "release", "testdata", "plain.key"))
	require.NoError(t, err)
	key, err := release.ParseSecretKey(file, "")
	require.NoError(t, err)
	manifest, err = m.Encode()
	require.NoError(t, err)
	return manifest, key.Sign(manifest, "a test's")
}

// Write puts them where `release offer` looks for them and answers the folder.
func Write(t testing.TB, dir string, m release.Manifest) string {
	t.Helper()
	manifest, signature := Sign(t, m)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, release.ManifestName), manifest, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, release.SignatureName), signature, 0o600))
	return dir
}
