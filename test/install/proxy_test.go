package install

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
)

// account is what the proxy wants, in the form of a URL.
const account = "installer:canary-8e21"

// startProxy starts the only one that knows the way to github.com, which is the
// download site.
func startProxy(t *testing.T, s *site) *proxytest.Proxy {
	t.Helper()
	return proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Account: account, Site: s.Listener.Addr().String()})
}

// TestInstall_DownloadsThroughProxy: install.sh's own, to the very addresses that it has
// without a mirror.
func TestInstall_DownloadsThroughProxy(t *testing.T) {
	site, err := newSite("127.0.0.1")
	require.NoError(t, err)
	t.Cleanup(site.Close)
	const version = "v9.9.9"
	// Of itself a site has no folder of its name, as a mirror has.
	folder := strings.TrimPrefix(releases, "/github.com") + version + "/"
	site.publish(strings.TrimPrefix(newest, "/github.com"), version+"\n")
	site.put(folder, "SHA256SUMS", map[string][]byte{"agent.yaml": []byte("image: pipeops/agent:" + version + "\n")})

	upgrade := func(t *testing.T, p *proxytest.Proxy, account string) (said string, code int, log string) {
		t.Helper()
		cluster := newExistingCluster(t, map[string]string{"ca.pem": string(site.ca)})
		said, code = cluster.with("HTTPS_PROXY="+p.URL(account), "PIPEOPS_CA_FILE="+filepath.Join(cluster.dir, "ca.pem")).script(t, "upgrade")
		return said, code, string(read(t, filepath.Join(cluster.dir, "log")))
	}
	t.Run("with its account", func(t *testing.T) {
		p := startProxy(t, site)
		said, _, log := upgrade(t, p, account)
		assert.Contains(t, said, "the newest version is "+version)
		assert.Contains(t, said, "the agent to "+version)
		assert.Contains(t, log, "checksum of agent.yaml is right")
		assert.Equal(t, []string{"github.com:443"}, p.Asked())
		assert.Contains(t, strings.Join(site.downloads(), "\n"), folder+"agent.yaml")
		assert.NotContains(t, said+log, "canary")
	})
	t.Run("with a wrong one", func(t *testing.T) {
		p := startProxy(t, site)
		said, code, log := upgrade(t, p, "installer:canary-wrong")
		assert.Equal(t, 5, code, said)
		assert.Contains(t, said, "the proxy does not let it through: it wants an account")
		assert.Contains(t, said, "fix: set HTTPS_PROXY=")
		assert.Empty(t, p.Asked())
		assert.NotContains(t, said+log, "canary")
	})
}
