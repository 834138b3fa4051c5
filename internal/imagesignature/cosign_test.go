package imagesignature_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	keyless "github.com/pipeops/pipeops-vm-agent/internal/sigstore"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/sigstoretest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// cosignIn returns the command itself, which runs in a directory.
func cosignIn(t *testing.T, dir string) func(args ...string) {
	t.Helper()
	suite.Release(t, "signatures of the cosign command")
	command, err := programs.Cosign.Build(t.Context())
	require.NoError(t, err)
	return func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
}

// TestVerify_RealCosign signs with a key, in both forms.
func TestVerify_RealCosign(t *testing.T) {
	dir := t.TempDir()
	cosign := cosignIn(t, dir)
	key := func(name string) imagesignature.Signer {
		t.Helper()
		cosign("generate-key-pair", "--output-key-prefix", name)
		text, err := os.ReadFile(filepath.Join(dir, name+".pub"))
		require.NoError(t, err)
		k, err := imagesignature.ReadKey(string(text))
		require.NoError(t, err)
		return k
	}
	ours, other := key("ours"), key("other")
	for _, referrers := range []bool{true, false} {
		p := open(t, registry.WithReferrersSupport(referrers))
		for _, bundle := range []string{"true", "false"} {
			ref := p.push("shop/web")
			require.True(t, problem.Is(p.verify(ref, ours), problem.Code(imagesignature.Unsigned)))
			cosign("sign", "--yes", "--key", "ours.key", "--tlog-upload=false", "--use-signing-config=false", "--allow-insecure-registry", "--new-bundle-format="+bundle, ref.Name())
			p.verifier = imagesignature.New(p.config)
			require.NoError(t, p.verify(ref, ours), "referrers %t, bundle %s", referrers, bundle)
			assert.True(t, problem.Is(p.verify(ref, other), problem.Code(imagesignature.NotListed)))
		}
	}
}

// TestVerify_RealCosignKeyless signs keyless, against the stand-in for Sigstore.
func TestVerify_RealCosignKeyless(t *testing.T) {
	dir := t.TempDir()
	cosign := cosignIn(t, dir)
	s := sigstoretest.New(t)
	s.WithSCT = true
	service := func(path string) []any {
		return []any{map[string]any{
			"url": s.URL + path, "majorApiVersion": 1, "operator": "test", "validFor": map[string]any{"start": "2020-01-01T00:00:00Z"},
		}}
	}
	config, err := json.Marshal(map[string]any{
		"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
		"caUrls":    service(""), "rekorTlogUrls": service(""), "tsaUrls": service("/api/v1/timestamp"),
		"rekorTlogConfig": map[string]any{"selector": "ANY"}, "tsaConfig": map[string]any{"selector": "ANY"},
	})
	require.NoError(t, err)
	for name, text := range map[string]string{"config.json": string(config), "root.json": s.TrustedRoot(), "token": sigstoretest.Token(workflow, github)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	ours := signerOf(t, s, keyless.Keyless{Identity: workflow, Issuer: github})
	other := signerOf(t, s, keyless.Keyless{Identity: "ann@example.com", Issuer: github})
	p := open(t, registry.WithReferrersSupport(true))
	for kind, args := range map[string][]string{
		"bundle": {"--signing-config=config.json", "--trusted-root=root.json"},
		"tag":    {"--new-bundle-format=false", "--use-signing-config=false", "--fulcio-url=" + s.URL, "--rekor-url=" + s.URL, "--trusted-root=root.json"},
	} {
		ref := p.push("shop/web")
		cosign(append(append([]string{"sign", "--yes", "--identity-token=token", "--allow-insecure-registry"}, args...), ref.Name())...)
		require.NoError(t, p.verify(ref, ours), kind)
		assert.True(t, problem.Is(p.verify(ref, other), problem.Code(imagesignature.NotListed)), kind)
	}
}
