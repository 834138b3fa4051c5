package install

import (
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// account is what the proxy wants, in the form of a URL.
const account = "installer:canary-8e21"

// proxy is a company's proxy: it tunnels (CONNECT), wants an account, and is the
// only one that knows the way to github.com, which is the download site.
type proxy struct {
	*httptest.Server
	site string // HOST:PORT

	mu    sync.Mutex
	hosts []string
}

func startProxy(t *testing.T, s *site) *proxy {
	t.Helper()
	p := &proxy{site: s.Listener.Addr().String()}
	p.Server = httptest.NewServer(http.HandlerFunc(p.connect))
	t.Cleanup(p.Close)
	return p
}

// setting is HTTPS_PROXY for an account.
func (p *proxy) setting(account string) string {
	return "HTTPS_PROXY=http://" + account + "@" + p.Listener.Addr().String()
}

func (p *proxy) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	if r.Header.Get("Proxy-Authorization") != "Basic "+base64.StdEncoding.EncodeToString([]byte(account)) {
		w.Header().Set("Proxy-Authenticate", "Basic")
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	}
	p.mu.Lock()
	p.hosts = append(p.hosts, r.Host)
	p.mu.Unlock()
	there, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(r.Context(), "tcp", p.site)
	if err != nil {
		http.Error(w, "cannot reach it", http.StatusBadGateway)
		return
	}
	defer there.Close()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer here.Close()
	if _, err := io.WriteString(here, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(here, there)
		_ = here.Close()
	}()
	_, _ = io.Copy(there, buffered)
	_ = there.Close()
	<-done
}

// asked are the hosts that were asked for, each once.
func (p *proxy) asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(p.hosts)))
}

// TestDownloadsGoThroughAProxy: install.sh's own, to the very addresses that it has
// without a mirror.
func TestDownloadsGoThroughAProxy(t *testing.T) {
	site, err := newSite("127.0.0.1")
	require.NoError(t, err)
	t.Cleanup(site.Close)
	const version = "v9.9.9"
	// Of itself a site has no folder of its name, as a mirror has.
	folder := strings.TrimPrefix(releases, "/github.com") + version + "/"
	site.publish(strings.TrimPrefix(newest, "/github.com"), version+"\n")
	site.put(folder, "SHA256SUMS", map[string][]byte{"agent.yaml": []byte("image: pipeops/agent:" + version + "\n")})

	upgrade := func(t *testing.T, p *proxy, account string) (said string, code int, log string) {
		t.Helper()
		cluster := newExistingCluster(t, map[string]string{"ca.pem": string(site.ca)})
		said, code = cluster.with(p.setting(account), "PIPEOPS_CA_FILE="+filepath.Join(cluster.dir, "ca.pem")).script(t, "upgrade")
		return said, code, string(read(t, filepath.Join(cluster.dir, "log")))
	}
	t.Run("with its account", func(t *testing.T) {
		p := startProxy(t, site)
		said, _, log := upgrade(t, p, account)
		assert.Contains(t, said, "the newest version is "+version)
		assert.Contains(t, said, "the agent to "+version)
		assert.Contains(t, log, "checksum of agent.yaml is right")
		assert.Equal(t, []string{"github.com:443"}, p.asked())
		assert.Contains(t, strings.Join(site.downloads(), "\n"), folder+"agent.yaml")
		assert.NotContains(t, said+log, "canary")
	})
	t.Run("with a wrong one", func(t *testing.T) {
		p := startProxy(t, site)
		said, code, log := upgrade(t, p, "installer:canary-wrong")
		assert.Equal(t, 5, code, said)
		assert.Contains(t, said, "the proxy does not let it through: it wants an account")
		assert.Contains(t, said, "fix:  set HTTPS_PROXY=")
		assert.Empty(t, p.asked())
		assert.NotContains(t, said+log, "canary")
	})
}
