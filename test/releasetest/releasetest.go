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
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
)

// Public keys: of the test's signer, of a second signer, and of another one.
const (
	PublicKey = "RWSwUuJ+jZW/1R+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2"
	SecondKey = "RWRsQbfKHf78jWA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQT"
	OtherKey  = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3" // of minisign's own releases
)

// secretKey is the secret key of PublicKey: a key file of minisign without a passphrase. It
// protects nothing.
const secretKey = `untrusted comment: TEST KEY of internal/release, made by minisign 0.11 -W
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAsFLifo2Vv9WkXJUbwTsbI7Y1da15m6jpqg4asyeSl3jJyaWHoOQDmx+0bEXcj9CjMNzu/WVTjxp05XjT1k5Q0YanY4YmN0E2AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
`

// SecondSecretKey is that of SecondKey.
const SecondSecretKey = `untrusted comment: TEST KEY of internal/release, without its passphrase
RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAbEG3yh3+/I1j5tMRxMIuwvOJHsFgqVLqWvseH0IOKDutBaB/TfsKkGA33Ao87W5k5CekBqJUOW6KYd2HPn13BBIXZ4we8pQTAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
`

// Sign returns a manifest and its signature, as they are published.
func Sign(t testing.TB, m release.Manifest) (manifest, signature []byte) {
	t.Helper()
	return signBy(t, m, secretKey)
}

// far is when manifests of tests expire that do not say otherwise.
var far = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// SignBoth is like Sign, with the second signer's signature as well.
func SignBoth(t testing.TB, m release.Manifest) (manifest, signatures []byte) {
	t.Helper()
	return signBy(t, m, secretKey, SecondSecretKey)
}

func signBy(t testing.TB, m release.Manifest, keys ...string) (manifest, signatures []byte) {
	t.Helper()
	if m.Expires.IsZero() {
		m.Expires = far
	}
	manifest, err := m.Encode()
	require.NoError(t, err)
	for _, text := range keys {
		key, err := release.ParseSecretKey([]byte(text), "")
		require.NoError(t, err)
		signatures = append(signatures, key.Sign(manifest, "a test's")...)
	}
	return manifest, signatures
}

// Write writes them where `offer create` looks for them and returns the folder.
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

// Trust returns the trust in the test's signer alone.
func Trust(t testing.TB) release.Trust {
	t.Helper()
	return TrustIn(t, 1, PublicKey)
}

// TrustIn returns the trust in that many of the keys.
func TrustIn(t testing.TB, signatures int, keys ...string) release.Trust {
	t.Helper()
	parsed, err := release.ParseKeys(strings.Join(keys, ","))
	require.NoError(t, err)
	return release.Trust{Keys: parsed, Signatures: signatures}
}
