package install

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/machine"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestServer: one command on a bare machine, and an App answers at a public URL.
func TestServer(t *testing.T) {
	suite.Release(t, "install.sh server on a booted machine")
	w := theWorld(t)
	t.Cleanup(w.site.keep())
	t.Cleanup(func() { require.NoError(t, w.stopCluster(context.Background())) })
	w.publishPrograms(t)
	forward(t)
	c := newComputer(t, w, "server", machine.Bookworm).with("CLUSTER_NAME", "", "PIPEOPS_CONTROL_PLANE_URL", "")
	c.trust(t)
	before := c.tree(t, false)
	domain := strings.ReplaceAll(c.Address, ".", "-") + ".sslip.io"

	r := c.bash(t, "bash /root/install.sh server --dry-run")
	require.Zero(t, r.code, r.said)
	assert.Contains(t, r.said, "would install pipeops-controlplane")
	assert.Equal(t, before, c.tree(t, false))
	c.refusesTakenPort(t)

	start := time.Now()
	r = c.guide(t, "server", c.published()...)
	require.Zero(t, r.code, r.said)
	t.Logf("from the bare machine to the sample App: %s, of which the test cluster took %s\n%s", time.Since(start), w.cluster, r.said)
	visitor := c.visitor(t)
	link := regexp.MustCompile(`https://console\.\S+#\S+`).FindString(r.said)
	require.Contains(t, link, "https://console."+domain+"/console/enter#")
	assert.NotContains(t, c.file(installLog), link, "the link signs one browser in")
	assert.Contains(t, get(t, visitor, link), "<h1>Sign in</h1>")
	sample := regexp.MustCompile(`https://hello-\S+`).FindString(r.said)
	require.Contains(t, sample, "."+domain)
	assert.Contains(t, get(t, visitor, sample), "It works")
	assert.Contains(t, c.file("/etc/rancher/k3s/config.yaml.d/pipeops.yaml"), "disable+:\n  - \"traefik\"\n  - \"servicelb\"\n")

	t.Run("another machine can join", func(t *testing.T) {
		r := c.guide(t, "server-token")
		require.Zero(t, r.code, r.said)
		token, err := controlapi.ParseToken(regexp.MustCompile(`pipeops_\S+`).FindString(r.said))
		require.NoError(t, err)
		assert.Equal(t, "https://"+c.Address+":8443", token.URL())
	})
	t.Run("a laptop deploys", func(t *testing.T) { c.laptopDeploys(t, visitor) })
	t.Run("a second run changes nothing", func(t *testing.T) {
		// The control plane writes to its data by itself.
		tree := func() []string {
			return slices.DeleteFunc(c.tree(t, true), func(file string) bool { return strings.HasPrefix(file, "/var/lib/private/pipeops-controlplane/") })
		}
		files := tree()
		r := c.guide(t, "server", c.published()...)
		require.Zero(t, r.code, r.said)
		assert.Equal(t, 2, strings.Count(r.said, "it is installed and runs"), r.said)
		assert.Contains(t, r.said, sample)
		assert.Equal(t, files, tree())
	})
	t.Run("a bundle of another version repairs and upgrades", func(t *testing.T) {
		c.bundle(t, "v1.0.0")
		c.bash(t, "systemctl stop pipeops-controlplane; rm /etc/pipeops/server.env /usr/local/bin/pipeops-runner")
		r := c.with("PIPEOPS_MIRROR", "").bash(t, "cd /root && tar xf pipeops-bundle-v1.0.0-amd64.tar.gz && cd pipeops-bundle-v1.0.0-amd64 && "+
			"PIPEOPS_BUNDLE=$PWD bash install.sh server && rm -r /root/pipeops-bundle*")
		require.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "the control plane v1.0.0")
		assert.Contains(t, get(t, visitor, sample), "It works")
	})
	t.Run("doctor", func(t *testing.T) {
		r := c.guide(t, "server-doctor", c.published()...)
		require.Zero(t, r.code, r.said)
		assert.Contains(t, r.said, "ok    control plane here: it is ready")
	})
	t.Run("uninstall leaves nothing", func(t *testing.T) {
		r := c.guide(t, "server-uninstall", c.published()...)
		require.Zero(t, r.code, r.said)
		assert.Equal(t, before, c.tree(t, false))
	})
}

// forward has this machine pass packets on: the fake's cluster is beside the machine that it should
// be on, and its agent has to reach that.
func forward(t *testing.T) {
	t.Helper()
	const setting = "/proc/sys/net/ipv4/ip_forward"
	before := read(t, setting)
	require.NoError(t, os.WriteFile(setting, []byte("1"), 0o600))
	t.Cleanup(func() { require.NoError(t, os.WriteFile(setting, before, 0o600)) })
}

// publishPrograms puts the archive of a release on the download site.
func (w *world) publishPrograms(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	top := filepath.Join(dir, "pipeops_dev_linux_amd64")
	require.NoError(t, os.MkdirAll(filepath.Join(top, "deployments"), 0o755))
	require.NoError(t, w.Binaries.Link(top))
	require.NoError(t, os.CopyFS(filepath.Join(top, "deployments/systemd"), os.DirFS("../../deployments/systemd")))
	archive := filepath.Join(dir, "pipeops.tar.gz")
	out, err := exec.CommandContext(t.Context(), "tar", "-czhf", archive, "-C", dir, filepath.Base(top)).CombinedOutput()
	require.NoError(t, err, string(out))
	content, err := os.ReadFile(archive)
	require.NoError(t, err)
	files := map[string][]byte{filepath.Base(top) + ".tar.gz": content}
	for _, name := range []string{"agent.yaml", "install.sh", "join-worker.sh", "uninstall.sh"} {
		files[name] = w.site.file(releases + "dev/" + name)
	}
	w.site.put(releases+"dev/", "SHA256SUMS", files)
}

// refusesTakenPort: another web server is named before anything is changed.
func (c *computer) refusesTakenPort(t *testing.T) {
	t.Helper()
	r := c.bash(t, `perl -MIO::Socket::INET -e '$| = 1; $s = IO::Socket::INET->new(LocalPort => 80, Listen => 1) or die; print "ready\n"; sleep 600' >/run/port & `+
		`until grep -q ready /run/port; do :; done; bash /root/install.sh server; code=$?; kill %1; exit $code`)
	assert.Equal(t, 4, r.code, r.said)
	assert.Contains(t, r.said, "port 80 is in use")
	assert.Contains(t, r.said, "where the gateway has to")
}

// visitor is a client whose DNS leads every name to the machine, and which trusts the gateway's CA.
func (c *computer) visitor(t *testing.T) *http.Client {
	t.Helper()
	r := c.guide(t, "server-ca")
	require.Zero(t, r.code, r.said)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM([]byte(r.said)), r.said)
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort(c.Address, "443"))
		},
	}}
}

// get returns the body of a page.
func get(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	resp, err := client.Get(url)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode, string(text))
	return string(text)
}

// laptopDeploys runs the line that the installer prints, with this machine as the laptop.
func (c *computer) laptopDeploys(t *testing.T, visitor *http.Client) {
	t.Helper()
	credentials := c.bash(t, "pipeops-controlplane runner create laptop -o - 2>/dev/null")
	require.Zero(t, credentials.code, credentials.said)
	home := t.TempDir()
	laptop := func(in string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), c.world.Binaries.Runner, args...)
		cmd.Env, cmd.Stdin = []string{"HOME=" + home}, strings.NewReader(in)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}
	laptop(credentials.said, "login", "-", "--agent", "server")
	said := laptop("", "deploy", "web", "--image", "pipeops/agent:dev", "--port", "8080", "--public", "--", "sample")
	url := regexp.MustCompile(`https://web-\S+`).FindString(said)
	require.NotEmpty(t, url, said)
	assert.Contains(t, get(t, visitor, url), "It works")
}
