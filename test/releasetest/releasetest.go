// Package releasetest signs releases for tests, with a secret key that is in this repository.
package releasetest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// Public keys: of the test's signer, and of another one.
const (
	PublicKey = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2"
	OtherKey  = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3" // of minisign's own releases
)

// secretKey is the secret key of PublicKey: a key file of minisign without a passphrase. It
// protects nothing.
const secretKey = `untrusted comment: TEST KEY of internal/release, made by minisign 0.11 -W
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAsFLifo2Vv9WkXJUbwTsbI7Y1da15m6jpqg4asyeSl3jJyaWHoOQDmx+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
`

// Sign returns a manifest and its signature, as they are published.
func Sign(t testing.TB, m release.Manifest) (manifest, signature []byte) {
	t.Helper()
	key, err := release.ParseSecretKey([]byte(secretKey), "")
	require.NoError(t, err)
	manifest, err = m.Encode()
	require.NoError(t, err)
	return manifest, key.Sign(manifest, "a test's")
}

// Write writes them where `release offer` looks for them and returns the folder.
func Write(t testing.TB, dir string, m release.Manifest) string {
	t.Helper()
	manifest, signature := Sign(t, m)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, release.ManifestName), manifest, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, release.SignatureName), signature, 0o600))
	return dir
}

// Publish puts a program below the folder of a site, as the agent of a release, and returns the
// manifest and its signature. change falsifies the manifest.
func Publish(t testing.TB, site, version, program string, change ...func(*release.File)) (manifest, signature []byte) {
	t.Helper()
	text, err := os.ReadFile(program)
	require.NoError(t, err)
	sum := sha256.Sum256(text)
	file := release.File{
		Name: "pipeops-agent_" + version, Kind: release.KindAgent, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:]),
	}
	for _, c := range change {
		c(&file)
	}
	dir := filepath.Join(site, version)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, file.Name), text, 0o600))
	return Sign(t, release.Manifest{Version: version, Commit: "abc", Files: []release.File{file}})
}

// Site serves releases over TLS, and returns its URL and a file with its CA.
func Site(t testing.TB, dir string) (url, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return server.URL, ca
}

// Keys returns the keys that trust the test's signer.
func Keys(t testing.TB) []release.PublicKey {
	t.Helper()
	keys, err := release.ParseKeys(PublicKey)
	require.NoError(t, err)
	return keys
}
