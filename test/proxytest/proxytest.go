// Package proxytest gives a test an HTTP proxy like that of a company: it tunnels (CONNECT, RFC
// 9110 section 9.3.6), requires an account if it has one, and records its requests.
package proxytest

import (
	"cmp"
	"crypto/subtle"
	"encoding/base64"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Config describes a proxy.
type Config struct {
	Host    string // address to listen on
	Account string // USER:PASSWORD; a proxy without one serves everyone
	// Site is the HOST:PORT to which every tunnel leads. When it is empty, each leads
	// to what was asked for.
	Site string
	// Sites are those of single HOST:PORTs, before Site.
	Sites map[string]string
}

// Proxy is one that runs until its test ends.
type Proxy struct {
	cfg     Config
	address string

	mu    sync.Mutex
	hosts []string
}

// Start starts one.
func Start(t *testing.T, cfg Config) *Proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(cfg.Host, "0"))
	require.NoError(t, err)
	p := &Proxy{cfg: cfg, address: listener.Addr().String()}
	server := httptest.NewUnstartedServer(http.HandlerFunc(p.connect))
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	server.Start()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return p
}

// Address returns the HOST:PORT where it listens.
func (p *Proxy) Address() string { return p.address }

// URL returns the value of HTTPS_PROXY for an account.
func (p *Proxy) URL(account string) string { return "http://" + account + "@" + p.address }

// Asked returns the requested hosts with the right account, each once.
func (p *Proxy) Asked() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(p.hosts)))
}

func (p *Proxy) connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(p.cfg.Account))
	if p.cfg.Account != "" && subtle.ConstantTimeCompare([]byte(r.Header.Get("Proxy-Authorization")), []byte(want)) != 1 {
		w.Header().Set("Proxy-Authenticate", "Basic")
		http.Error(w, "who are you?", http.StatusProxyAuthRequired)
		return
	}
	p.mu.Lock()
	p.hosts = append(p.hosts, r.Host)
	p.mu.Unlock()
	to := cmp.Or(p.cfg.Sites[r.Host], p.cfg.Site, r.Host)
	there, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(r.Context(), "tcp", to)
	if err != nil {
		http.Error(w, "cannot reach it", http.StatusBadGateway)
		return
	}
	defer func() { _ = there.Close() }()
	here, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = here.Close() }()
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
