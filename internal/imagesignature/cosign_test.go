package imagesignature_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestVerify_RealCosign signs with the command itself, in both forms.
func TestVerify_RealCosign(t *testing.T) {
	suite.Release(t, "signatures of the cosign command")
	command, err := programs.Cosign.Build(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	cosign := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), command, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "COSIGN_PASSWORD=", "HOME="+dir)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", args, out)
	}
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
