package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// upgradeToNewest has the script of one release find the next: v3.0.0 runs, and
// v3.1.0 appears on the site.
func (c *computer) upgradeToNewest(t *testing.T) {
	key := releaseKey(t)
	runs := c.release(t, "v3.0.0", "pipeops/agent:v3.0.0")
	require.NoError(t, c.WriteFile("/root/install.sh", released(t, "v3.0.0", runs, key.Public().String()), 0o755))
	upgrade := func() result { return c.guide(t, "upgrade") }
	c.world.site.downloads()
	r := upgrade()
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "the newest version is v3.0.0, installed is v3.0.0\n")
	assert.Contains(t, r.said, "it is that already")
	assert.NotContains(t, strings.Join(c.world.site.downloads(), "\n"), "SHA256SUMS", "its own version's manifest is known by its checksum")

	c.release(t, "v3.1.0", "pipeops/agent:v3.1.0")
	list := releases + "v3.1.0/SHA256SUMS"
	r = upgrade()
	assert.Equal(t, 5, r.code, "nobody signed it: "+r.said)
	checks := strings.HasPrefix(c.bash(t, "openssl version").said, "OpenSSL 3")
	if checks {
		c.world.site.publish(list+".minisig", string(key.Sign(c.world.site.file(list), "pipeops v3.0.9 SHA256SUMS")))
		r = upgrade()
		assert.Equal(t, 6, r.code, r.said)
		assert.Contains(t, r.said, "not signed by a key that this script trusts")
	}
	c.world.site.publish(list+".minisig", string(key.Sign(c.world.site.file(list), "pipeops v3.1.0 SHA256SUMS")))
	if !checks { // Debian 11 has OpenSSL 1.1
		r = upgrade()
		assert.Equal(t, 6, r.code, r.said)
		assert.Contains(t, r.said, "neither minisign nor OpenSSL 3 is installed")
		c = c.with("PIPEOPS_ALLOW_UNSIGNED", "yes")
	}
	image := `k3s kubectl --kubeconfig /etc/rancher/k3s/k3s.yaml -n pipeops get deployment pipeops-agent -o 'jsonpath={..image}'`
	r = c.guide(t, "upgrade-dry-run")
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "the newest version is v3.1.0, installed is v3.0.0\n")
	assert.Contains(t, r.said, "would apply its manifest")
	assert.Equal(t, "pipeops/agent:v3.0.0", c.bash(t, image).said)
	r = upgrade()
	require.Zero(t, r.code, r.said)
	t.Log(r.said)
	assert.Equal(t, "pipeops/agent:v3.1.0", c.bash(t, image).said)

	c.world.site.publish(newest, "v3.0.9\n") // a mirror that is behind
	r = upgrade()
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "that is older")
	assert.Equal(t, "pipeops/agent:v3.1.0", c.bash(t, image).said)
	heal := c.world.site.fault(newest, other)
	defer heal()
	r = upgrade()
	assert.Equal(t, 5, r.code, r.said)
	assert.Contains(t, r.said, "the newest version cannot be found")
}

// releaseKey is internal/release's for tests.
func releaseKey(t *testing.T) release.SecretKey {
	t.Helper()
	key, err := release.ParseSecretKey(read(t, "../../internal/release/testdata/plain.key"), "")
	require.NoError(t, err)
	return key
}

// released is install.sh as a release stamps it.
func released(t *testing.T, version string, manifest []byte, keys string) []byte {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.yaml")
	require.NoError(t, os.WriteFile(file, manifest, 0o600))
	maker, err := programs.Program{Package: "./scripts/install"}.Build(t.Context())
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), maker, "-output", dir, "-version", version, "-pin", file, "-keys", keys)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return read(t, filepath.Join(dir, "install.sh"))
}
