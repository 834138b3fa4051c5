package gateway_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/direct"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

var (
	loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	// quick looks at endpoints often. A busy machine may take its time to connect.
	quick = direct.Timing{Check: 20 * time.Millisecond, Idle: 50 * time.Millisecond, Connect: 30 * time.Second, Again: 50 * time.Millisecond}
)

// site is a world whose agent has a load balancer of its cluster, which can fail.
type site struct {
	*world
	balancer *faultproxy.Proxy
	gateway  *gateway.Gateway
	app      string // address of the App
	name     string // its host
}

// newSiteIn is a site for an App in one of the gateway's modes: the App is at an address, and
// behind a load balancer. The site is found when that accepts.
func newSiteIn(t *testing.T, mode, name, app string, balancer net.Listener, change ...func(*gateway.Config)) *site {
	t.Helper()
	s := &site{balancer: faultproxy.New(t, balancer.Addr().String()), app: app, name: name}
	s.world = newWorld(t, nil, append([]func(*gateway.Config){func(c *gateway.Config) {
		c.Direct = gateway.Direct{Allowed: loopback, Port: s.balancer.Port(), Timing: quick, Mode: mode}
	}}, change...)...)
	s.gateway = s.world.gateway
	s.handler.Endpoints = agentside.Endpoints{Allowed: loopback, Port: s.balancer.Port()}
	if name != host {
		serves(t, s.store, "a1", time.Now(), hosts.CNAME, name)
	}
	return s
}

// found has the agent report the load balancer, and waits until the gateway is in its mode.
func (s *site) found(mode string) {
	s.t.Helper()
	s.endpoint("127.0.0.1")
	if mode == gateway.ModeDirect {
		s.awaitMode(mode, "")
	}
}

// accept handles the connections to a listener until the context ends.
func accept(ctx context.Context, ln net.Listener, handle func(net.Conn)) error {
	var conns sync.WaitGroup
	defer conns.Wait()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		conns.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
			handle(conn)
			_ = conn.Close()
		})
	}
}

// newSite has an App that answers which way a request came.
func newSite(t *testing.T, change ...func(*gateway.Config)) *site { return newSiteAt(t, 0, change...) }

// newSiteAt is like newSite for an agent that finds its load balancer at a port; 0 for the site's
// own.
func newSiteAt(t *testing.T, port int, change ...func(*gateway.Config)) *site {
	t.Helper()
	s := &site{name: host}
	app := func(way string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" {
				if conn, err := websocket.Accept(w, r, nil); err == nil {
					_ = conn.Write(r.Context(), websocket.MessageText, []byte(way))
					_ = conn.CloseNow()
				}
				return
			}
			body, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%s %s %s %s%s", way, r.Method, r.Host, r.Header.Get("X-Forwarded-For"), body)
		})
	}
	controller := quietServer(t, app("direct"), fixed(issued(t))) // with a certificate that nothing trusts
	s.balancer = faultproxy.New(t, controller.Listener.Addr().String())
	s.world = newWorld(t, app("tunnel"), append([]func(*gateway.Config){func(c *gateway.Config) {
		c.Direct = gateway.Direct{Allowed: loopback, Port: s.balancer.Port(), Timing: quick}
	}}, change...)...)
	s.gateway = s.world.gateway
	s.handler.Endpoints = agentside.Endpoints{Allowed: loopback, Port: cmp.Or(port, s.balancer.Port())}
	s.app = s.backend(app("tunnel"))
	s.endpoint("127.0.0.1")
	return s
}

// quietServer is an HTTPS server that does not log how its visitors leave.
func quietServer(t *testing.T, h http.Handler, certificate func() *tls.Certificate) *httptest.Server {
	t.Helper()
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate(), nil }}
	// Without its own certificate, httptest adds one that comes first.
	srv.TLS.Certificates = []tls.Certificate{*certificate()}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv
}

func fixed(c *tls.Certificate) func() *tls.Certificate {
	return func() *tls.Certificate { return c }
}

// endpoint has the agent report an endpoint of the host.
func (s *site) endpoint(endpoint string) {
	s.t.Helper()
	s.handler.Set([]agentside.Route{{Host: s.name, Path: "/", PathType: "Prefix", Addresses: []string{s.app}, Endpoint: endpoint}})
	require.NoError(s.t, s.store.Update(s.t.Context(), func(tx *store.Tx) error {
		return tx.PutRoutes(s.t.Context(), "a1", []store.Route{
			{Host: s.name, Path: "/", PathType: "Prefix", TLS: true, Namespace: "n", Service: "s", Port: 80, Endpoint: endpoint},
		}, store.RouteSet{Digest: endpoint, At: time.Now()})
	}))
	require.NoError(s.t, s.table.Refresh(s.t.Context()))
	s.gateway.Follow()
}

// mode returns how the host is reached, and why not directly.
func (s *site) mode() (mode, reason string) {
	switch modes := s.gateway.Modes(); {
	case len(modes) == 0:
		return "", ""
	case modes[0].Direct:
		return "direct", ""
	default:
		return "tunnel", modes[0].Reason
	}
}

func (s *site) awaitMode(want, reason string) {
	s.t.Helper()
	await.Until(s.t, "the mode "+want+" "+reason, func() bool {
		is, why := s.mode()
		return is == want && strings.Contains(why, reason)
	})
}

// get returns the answer to a request.
func (s *site) get(c *http.Client, header ...string) string {
	s.t.Helper()
	_, body := do(s.t, c, request(s.t, http.MethodGet, "https://"+host+"/", nil, header...))
	return body
}

func TestDirect_UsesVerifiedEndpoint(t *testing.T) {
	s := newSite(t)
	s.awaitMode("direct", "")
	protocols(t, s.world, func(t *testing.T, c *http.Client) {
		assert.Equal(t, "direct GET "+host+" 127.0.0.1", s.get(c))
		_, body := do(t, c, request(t, http.MethodPost, "https://"+host+"/", strings.NewReader(" sent")))
		assert.Equal(t, "direct POST "+host+" 127.0.0.1 sent", body)
		assert.Equal(t, "tunnel GET "+host+" 127.0.0.1", s.get(c, "Cdn-Loop", "other.example; a=b, pipeops"), "what came from a gateway goes to no other")
	})
	conn, _, err := websocket.Dial(t.Context(), "wss://"+host+"/", &websocket.DialOptions{HTTPClient: s.client(false)})
	require.NoError(t, err)
	_, text, err := conn.Read(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "direct", string(text))
	_ = conn.CloseNow()

	s.endpoint("")
	assert.Equal(t, "tunnel GET "+host+" 127.0.0.1", s.get(s.client(true)), "the endpoint is gone")
}

// succeeds reports whether a request has the answer of an App.
func succeeds(c *http.Client, method string) bool {
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("text")
	}
	r, err := http.NewRequestWithContext(context.Background(), method, "https://"+host+"/", body)
	if err != nil {
		return false
	}
	resp, err := c.Do(r)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return errors.Join(err, resp.Body.Close()) == nil && resp.StatusCode == http.StatusOK
}

// TestDirect_FallsBackToTunnel fails the load balancer while requests are sent: at most one in a
// hundred fails, and none once the gateway has noticed.
func TestDirect_FallsBackToTunnel(t *testing.T) {
	for name, c := range map[string]struct {
		fault  faultproxy.Condition
		method string // a POST to a silent endpoint fails: the gateway cannot know whether the App has it
	}{
		"CutGET": {faultproxy.Condition{Cut: true}, http.MethodGet}, "CutPOST": {faultproxy.Condition{Cut: true}, http.MethodPost},
		"SilentGET": {faultproxy.Silent, http.MethodGet},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, func(cfg *gateway.Config) {
				if c.fault == faultproxy.Silent {
					cfg.Direct.Timing.Connect = time.Second
				}
			})
			client, sent, failed := s.client(false), 0, 0
			send := func(until func() bool) {
				for from := sent; sent < from+100 || !until(); sent++ {
					if !succeeds(client, c.method) {
						failed++
					}
				}
			}
			mode := func(want string) func() bool {
				return func() bool { is, _ := s.mode(); return is == want }
			}
			s.awaitMode("direct", "")
			send(mode("direct"))
			var failing sync.WaitGroup
			failing.Go(func() { s.balancer.Set(c.fault) }) // while requests are in progress
			send(mode("tunnel"))
			failing.Wait()
			before := failed
			send(mode("tunnel"))
			assert.Equal(t, before, failed, "none fails once the gateway has noticed")
			s.balancer.Set(faultproxy.Condition{})
			send(mode("direct"))
			if c.method == http.MethodGet { // a POST that was in progress may have reached the App
				assert.LessOrEqual(t, 100*failed, sent)
			}
			await.Until(t, "direct mode", func() bool { return strings.Contains(s.get(s.client(true)), "direct") })
		})
	}
}

func TestDirect_RefusesOtherKey(t *testing.T) {
	s := newSite(t)
	s.awaitMode("direct", "")
	other := newWorld(t, http.NotFoundHandler()) // with another key, and it is a gateway
	stranger := quietServer(t, http.NotFoundHandler(), fixed(issued(t)))
	elsewhere := func(at net.Addr) *site {
		port, _ := strconv.Atoi(at.String()[strings.LastIndex(at.String(), ":")+1:])
		s := newSite(t, func(c *gateway.Config) { c.Direct.Port = port })
		return s
	}
	a := elsewhere(stranger.Listener.Addr())
	a.awaitMode("tunnel", "another key")
	assert.Contains(t, a.get(a.client(true)), "tunnel")
	b := elsewhere(other.secure)
	b.awaitMode("tunnel", "is a gateway")
	assert.Contains(t, b.get(b.client(true)), "tunnel")
}

// TestDirect_CertificateRenewed presents another key after a renewal: the gateway asks the agent
// again.
func TestDirect_CertificateRenewed(t *testing.T) {
	var current atomic.Pointer[tls.Certificate]
	current.Store(issued(t))
	controller := quietServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "direct") }), current.Load)
	port := controller.Listener.Addr().(*net.TCPAddr).Port
	s := newSiteAt(t, port, func(c *gateway.Config) { c.Direct.Port = port })
	s.awaitMode("direct", "")
	c := s.client(true)
	assert.Equal(t, "direct", s.get(c))
	current.Store(issued(t))
	controller.CloseClientConnections()
	assert.NotEmpty(t, s.get(c), "no request fails")
	await.Until(t, "it is reached directly again", func() bool { return s.get(c) == "direct" })
}

func TestDirect_RefusesPrivateAddresses(t *testing.T) {
	var mu sync.Mutex
	asked := map[string]int{}
	key := func(_ context.Context, _, host string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		asked[host]++
		return strings.Repeat("0", 64), nil
	}
	trap := listen(t)
	t.Cleanup(func() { _ = trap.Close() })
	touched := make(chan struct{})
	go func() {
		if conn, err := trap.Accept(); err == nil {
			_ = conn.Close()
			close(touched)
		}
	}()
	p := direct.New(direct.Config{Key: key, Port: trap.Addr().(*net.TCPAddr).Port, Timing: quick, Log: zerolog.Nop()})
	var hosts []direct.Host
	for _, endpoint := range []string{"127.0.0.1", "localhost", "::1", "::ffff:127.0.0.1", "10.0.0.1", "169.254.169.254", "100.64.0.1", "192.0.2.1", "0.0.0.0", "64:ff9b::7f00:1"} {
		hosts = append(hosts, direct.Host{Name: "h" + strconv.Itoa(len(hosts)) + ".example", AgentID: "a", Endpoint: endpoint})
	}
	p.Set(hosts)
	stop := await.Background(t, "the prober", p.Run)
	await.Until(t, "all were tried", func() bool { return len(p.States()) == len(hosts) })
	for _, s := range p.States() {
		assert.False(t, s.Direct, s.Endpoint)
		assert.Contains(t, s.Reason, "not a public address", s.Endpoint)
	}
	stop()
	select {
	case <-touched:
		t.Error("something was connected to")
	default:
	}
}

func TestDirect_ForcedModes(t *testing.T) {
	t.Run("tunnel", func(t *testing.T) {
		s := newSite(t, func(c *gateway.Config) { c.Direct.Mode = gateway.ModeTunnel })
		assert.Empty(t, s.gateway.Modes())
		assert.Contains(t, s.get(s.client(true)), "tunnel")
	})
	t.Run("direct", func(t *testing.T) {
		s := newSite(t, func(c *gateway.Config) { c.Direct.Mode = gateway.ModeDirect })
		s.awaitMode("direct", "")
		s.balancer.Set(faultproxy.Condition{Cut: true})
		s.awaitMode("tunnel", "")
		resp, body := do(t, s.client(true), request(t, http.MethodGet, "https://"+host+"/", nil))
		assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
		assert.Contains(t, body, "address of its cluster")
		s.endpoint("")
		assert.Contains(t, s.get(s.client(true)), "tunnel", "a host without an endpoint has the tunnel alone")
	})
}

// issued returns a certificate with a new key, signed by itself.
func issued(t *testing.T) *tls.Certificate {
	t.Helper()
	cert, _, err := selfsigned.Pair("default")
	require.NoError(t, err)
	return &cert
}
