package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

// secondKey is another one of internal/release's, with its passphrase.
const (
	secondKey        = "../../internal/release/testdata/encrypted-cheaply.key"
	secondPassphrase = "correct horse"
)

// proven makes a release of one file, signed with the first key.
func proven(t *testing.T) string {
	t.Helper()
	r := release{version: "v1.2.3", commit: "abc", staging: t.TempDir(), out: &bytes.Buffer{}}
	r.manifest = published.Manifest{Version: r.version, Commit: r.commit, Expires: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)}
	require.NoError(t, os.MkdirAll(r.publish(), 0o700))
	require.NoError(t, r.keys(testKey, "", ""))
	require.NoError(t, r.add("agent.yaml", published.KindManifest, anywhere, text([]byte("kind: Namespace\n"))))
	require.NoError(t, r.prove(t.Context()))
	return r.publish()
}

func runSign(t *testing.T, args ...string) (said string, err error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetOut(&out)
	cmd.SetErr(&out)
	cmd.SetArgs(append([]string{"sign"}, args...))
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func passphraseFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "passphrase")
	require.NoError(t, os.WriteFile(file, []byte(secondPassphrase+"\n"), 0o600))
	return file
}

func TestSign_SecondMaintainer(t *testing.T) {
	dir, two := proven(t), releasetest.TrustIn(t, 2, testPublic, releasetest.SecondKey)
	verify := func() error {
		for _, name := range []string{published.ManifestName, published.SumsName} {
			if err := two.Verify(read(t, dir, name), read(t, dir, name+signatureSuffix)); err != nil {
				return err
			}
		}
		return nil
	}
	require.ErrorContains(t, verify(), "1 of the 2 signatures")
	said, err := runSign(t, dir, "--key", testKey)
	require.NoError(t, err)
	assert.Contains(t, said, "release.json is signed by "+testPublic+" already")
	require.ErrorContains(t, verify(), "1 of the 2 signatures")
	said, err = runSign(t, dir, "--key", secondKey, "--passphrase-file", passphraseFile(t))
	require.NoError(t, err, said)
	assert.Contains(t, said, "SHA256SUMS signed by "+releasetest.SecondKey)
	require.NoError(t, verify())
}

func TestSign_LaterExpiry(t *testing.T) {
	dir := proven(t)
	_, err := runSign(t, dir, "--key", secondKey, "--passphrase-file", passphraseFile(t))
	require.NoError(t, err)
	before := read(t, dir, published.ManifestName)
	_, err = runSign(t, dir, "--key", testKey, "--expires", "2020-01-01T00:00:00Z")
	require.ErrorContains(t, err, "--expires: the release would have expired at 2020-01-01T00:00:00Z (fix: ")
	assert.Equal(t, before, read(t, dir, published.ManifestName))
	said, err := runSign(t, dir, "--key", testKey, "--expires", "2101-01-01T01:00:00+01:00")
	require.NoError(t, err, said)
	m, err := releasetest.TrustIn(t, 1, testPublic).Open(read(t, dir, published.ManifestName), read(t, dir, "release.json.minisig"))
	require.NoError(t, err)
	assert.Equal(t, time.Date(2101, 1, 1, 0, 0, 0, 0, time.UTC), m.Expires)
	said, err = shell(t, dir, "sha256sum --check --strict SHA256SUMS")
	require.NoError(t, err, said)

	two := releasetest.TrustIn(t, 2, testPublic, releasetest.SecondKey)
	require.ErrorContains(t, two.Verify(read(t, dir, "SHA256SUMS"), read(t, dir, "SHA256SUMS.minisig")), "1 of the 2 signatures", "the other maintainer signs it again too")
	_, err = runSign(t, dir, "--key", secondKey, "--passphrase-file", passphraseFile(t))
	require.NoError(t, err)
	require.NoError(t, two.Verify(read(t, dir, "SHA256SUMS"), read(t, dir, "SHA256SUMS.minisig")))
}

func TestExpiry(t *testing.T) {
	at, err := expiry("", stamp)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2027, 5, 20, 12, 0, 0, 0, time.UTC), at)
	at, err = expiry("2030-01-01T00:00:00Z", stamp)
	require.NoError(t, err)
	assert.Equal(t, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), at)
	_, err = expiry("tomorrow", stamp)
	require.ErrorContains(t, err, "--expires tomorrow: write it as ")
	require.NoError(t, checkFuture(at, at.Add(-time.Second)))
	require.ErrorContains(t, checkFuture(at, at), "(fix: name a later time)")
}

func TestSign_RefusesIncompleteRelease(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"a changed file":      {"agent.yaml", "kind: Pod\n", "agent.yaml: its SHA-256 is "},
		"a changed list":      {"SHA256SUMS", "", "SHA256SUMS does not list the files of release.json"},
		"no manifest":         {"release.json", "{}", "release.json: version"},
		"a broken signature":  {"release.json.minisig", "x", "release.json.minisig: signature 1 is none of minisign's"},
		"too many signatures": {"release.json.minisig", string(make([]byte, published.MaxSignature+1)), "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := proven(t)
			require.NoError(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o600))
			_, err := runSign(t, dir, "--key", secondKey, "--passphrase-file", passphraseFile(t))
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := runSign(t, proven(t), "--key", secondKey)
	require.ErrorContains(t, err, "--key "+secondKey+": the passphrase is not that of the key")
}
