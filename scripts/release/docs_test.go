package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	published "github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// documented are the commands of docs/contributing/publishing.md of that name, with words replaced.
func documented(t *testing.T, name string, replace ...string) string {
	t.Helper()
	block := regexp.MustCompile("(?s)<!-- run: " + name + " -->\n```sh\n(.*?)```").FindStringSubmatch(string(read(t, "../../docs/contributing", "publishing.md")))
	require.NotNil(t, block, "docs/contributing/publishing.md has no commands %q", name)
	return strings.NewReplacer(replace...).Replace(block[1])
}

func shell(t *testing.T, dir, commands string) (said string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// checksOfTheGuide are what operators do.
func checksOfTheGuide(t *testing.T, dir string) {
	for _, program := range []string{"minisign", "jq"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed (`go run ./test/setup test` does it)", program)
		}
	}
	check := documented(t, "check", "KEY", testPublic)
	said, err := shell(t, dir, check)
	require.NoError(t, err, said)
	assert.Contains(t, said, "pipeops v1.2.3 SHA256SUMS")
	assert.Contains(t, said, "agent.yaml: OK")
	said, err = shell(t, dir, documented(t, "provenance"))
	require.NoError(t, err, said)
	assert.Contains(t, said, "agent.yaml: OK")
	said, err = shell(t, dir, documented(t, "digests"))
	require.NoError(t, err, said)
	var m published.Manifest
	require.NoError(t, json.Unmarshal(read(t, dir, "release.json"), &m))
	assert.Equal(t, "pipeops/agent@"+m.Images[0].Digest+"\n", said)

	signatures := t.TempDir()
	require.NoError(t, os.CopyFS(signatures, os.DirFS(dir)))
	said, err = runSign(t, signatures, "--key", secondKey, "--passphrase-file", passphraseFile(t))
	require.NoError(t, err, said)
	said, err = shell(t, signatures, check)
	require.NoError(t, err, "the first of two signatures: "+said)
	second := documented(t, "check-second", "SECOND", releasetest.SecondKey)
	said, err = shell(t, signatures, second)
	require.NoError(t, err, said)
	assert.Contains(t, said, "pipeops v1.2.3 SHA256SUMS")
	said, err = shell(t, dir, second)
	require.Error(t, err, "one maintainer has signed: "+said)

	changed := t.TempDir()
	require.NoError(t, os.CopyFS(changed, os.DirFS(dir)))
	require.NoError(t, os.WriteFile(filepath.Join(changed, "agent.yaml"), []byte("another"), 0o600))
	said, err = shell(t, changed, check)
	require.Error(t, err, said)
	assert.Contains(t, said, "agent.yaml: FAILED")
}

// TestGuide_SecondSignature has the second maintainer sign in both ways.
func TestGuide_SecondSignature(t *testing.T) {
	two := releasetest.TrustIn(t, 2, testPublic, releasetest.SecondKey)
	dir := proven(t)
	args := documented(t, "sign", "go run ./scripts/release sign ", "", "dist/v1.2.3", dir, "../keys/second.key", secondKey, "../keys/passphrase", passphraseFile(t))
	said, err := runSign(t, strings.Fields(args)...)
	require.NoError(t, err, said)
	require.NoError(t, two.Verify(read(t, dir, "release.json"), read(t, dir, "release.json.minisig")))

	if _, err := exec.LookPath("minisign"); err != nil {
		t.Skip("minisign is not installed (`go run ./test/setup test` does it)")
	}
	dir = proven(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "second.key"), []byte(releasetest.SecondSecretKey), 0o600))
	said, err = shell(t, dir, documented(t, "sign-minisign", "../keys/second.key", "second.key", "minisign -S", "minisign -S -W"))
	require.NoError(t, err, said)
	for _, name := range []string{"release.json", "SHA256SUMS"} {
		require.NoError(t, two.Verify(read(t, dir, name), read(t, dir, name+signatureSuffix)), name)
	}
}

func TestGuide_LaterExpiry(t *testing.T) {
	dir := proven(t)
	args := documented(t, "renew", "go run ./scripts/release sign ", "", "dist/v1.2.3", dir, "../keys/pipeops.key", secondKey, "../keys/passphrase", passphraseFile(t), "2027-", "2127-")
	said, err := runSign(t, strings.Fields(args)...)
	require.NoError(t, err, said)
	m, err := published.Decode(read(t, dir, "release.json"))
	require.NoError(t, err)
	assert.Equal(t, 2127, m.Expires.Year())
}

// TestGuide_MakeRelease has make print its command, and parses that.
func TestGuide_MakeRelease(t *testing.T) {
	require.NoError(t, inputs.Depend("Makefile"))
	for name, want := range map[string]map[string]string{
		"make":  {"version": "v1.2.3", "output": "dist/v1.2.3", "sign": "../keys/pipeops.key", "passphrase-file": "../keys/passphrase", "trust": ""},
		"again": {"version": "v1.2.3", "output": "dist/v1.2.3", "sign": "", "trust": testPublic},
	} {
		commands := documented(t, name, "make release", "make --no-print-directory -n release", "=KEY", "="+testPublic)
		said, err := shell(t, "../..", commands)
		require.NoError(t, err, said)
		_, args, found := strings.Cut(strings.ReplaceAll(said, "\\\n", " "), "./scripts/release ")
		require.True(t, found, said)
		cmd := newCommand()
		require.NoError(t, cmd.ParseFlags(strings.Fields(strings.ReplaceAll(args, "'", ""))))
		for flag, value := range want {
			got, err := cmd.Flags().GetString(flag)
			require.NoError(t, err)
			assert.Equal(t, value, got, flag)
		}
	}
}

// TestGuide_Push pushes the images of a release to a registry, as the guide has it.
func TestGuide_Push(t *testing.T) {
	suite.Release(t, "a release pushed to a registry")
	require.NoError(t, programs.Program{Package: "./scripts/image"}.Depend(t.Context()))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	dir, host := small(t, "../.."), strings.TrimPrefix(server.URL, "http://")
	for line := range strings.Lines(documented(t, "push", "dist/v1.2.3", dir, "docker.io", host)) {
		if !strings.Contains(line, "pipeops-agent") { // the small release has none
			continue
		}
		said, err := shell(t, "../..", strings.TrimSpace(line)+" --plain-http")
		require.NoError(t, err, said)
		var m published.Manifest
		require.NoError(t, json.Unmarshal(read(t, dir, "release.json"), &m))
		assert.Equal(t, fmt.Sprintf("pushed %s/pipeops/agent:v1.2.3@%s\n", host, m.Images[0].Digest), said)
	}
}
