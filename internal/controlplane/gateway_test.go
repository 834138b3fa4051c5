package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/dnstest"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// apart leaves the public to separate gateways.
func apart(c *Config) {
	lenient(c)
	c.Gateway = GatewayConfig{Domain: "apps.example.com", Apart: true, CA: GatewayInternal}
}

// runningGateway is a gateway that can be stopped.
type runningGateway struct {
	*GatewayServer
	stop func()
}

// gatewayAt starts a gateway beside the control planes; empty addresses take any port.
func (f *group) gatewayAt(https string) *runningGateway {
	f.t.Helper()
	cfg := f.config("")
	key, err := datadir.GatewayKey(datadir.Data{CAKey: f.key})
	require.NoError(f.t, err)
	g, err := NewGatewayServer(f.t.Context(), GatewayServerConfig{
		Database: cfg.Database, Key: key, HealthListen: "127.0.0.1:0", Log: zerolog.Nop(),
		Gateway: GatewayConfig{Domain: "apps.example.com", HTTPSListen: https, NoHTTP3: true, CA: GatewayInternal},
	})
	require.NoError(f.t, err)
	r := &runningGateway{g, await.Background(f.t, "the gateway", g.Run)}
	await.Until(f.t, "the gateway is ready", r.ready)
	return r
}

func (r *runningGateway) ready() bool {
	_, _, health := r.Addrs()
	resp, err := http.Get("http://" + health.String() + "/readyz")
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	var answer readiness
	return json.NewDecoder(resp.Body).Decode(&answer) == nil && answer.Ready && resp.StatusCode == http.StatusOK
}

func (r *runningGateway) address() string {
	secure, _, _ := r.Addrs()
	return secure.String()
}

// publish has an agent lead a host to a backend through a tunnel to each control plane.
func (f *group) publish(agent *cluster, host, backend string, planes ...*member) {
	f.t.Helper()
	handler := agentside.NewHandler(nil, zerolog.Nop())
	handler.Set([]agentside.Route{{Host: host, Path: "/", PathType: "Prefix", Addresses: []string{backend}}})
	for _, m := range planes {
		at := agent.at(m)
		tun, _ := at.connect(func(cfg *tunnel.Config) { cfg.TakePublic = true })
		await.Background(f.t, "the agent's end", func(ctx context.Context) error {
			_ = handler.Serve(ctx, tun.Public(), time.Second)
			return nil
		})
	}
	tell(agent, routeTo(host, "/", "web"))
	prove(f.t, planes[0].plane, agent.id.AgentID, host, hosts.TXT, "")
}

// visitorRoots are those of the gateways' own CA.
func visitorRoots(t *testing.T, p *plane) *x509.CertPool {
	t.Helper()
	storage, err := datadir.GatewayStorage(p.cfg.data(), p.store, time.Now)
	require.NoError(t, err)
	text, err := (&webcerts.Internal{Storage: storage, Now: time.Now}).Root(t.Context())
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(text))
	return roots
}

// balanced is a client behind a load balancer that continues to the next gateway when one accepts
// no connection.
func balanced(roots *x509.CertPool, gateways ...string) *http.Client {
	var turn atomic.Int64
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		MaxIdleConnsPerHost: 2, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
			first := int(turn.Add(1))
			for i := range gateways {
				if conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", gateways[(first+i)%len(gateways)]); err == nil {
					return conn, nil
				}
			}
			return nil, err
		},
	}}
}

// TestGateway_RollingRestart: two gateways and two control planes are each stopped and started
// again under steady requests. No request fails.
func TestGateway_RollingRestart(t *testing.T) {
	suite.Release(t, "gateways and control planes that restart under requests")
	t.Parallel()
	const host = "www.example.org"
	f := newGroup(t)
	planes := []*member{f.start(apart), f.start(apart)}
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	t.Cleanup(backend.Close)
	agent := planes[0].registered("shop")
	f.publish(agent, host, backend.Listener.Addr().String(), planes...)
	gateways := []*runningGateway{f.gatewayAt("127.0.0.1:0"), f.gatewayAt("127.0.0.1:0")}
	client := balanced(visitorRoots(t, planes[0].plane), gateways[0].address(), gateways[1].address())
	t.Cleanup(client.CloseIdleConnections)
	post := func() error {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+host+"/", io.NopCloser(strings.NewReader("text")))
		if err != nil {
			return err
		}
		resp, err := client.Do(r) // which cannot repeat it
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		return err
	}
	connected := func() {
		t.Helper()
		for _, m := range planes {
			await.Until(t, "the agent's tunnel is there", func() bool {
				at, err := m.store.PeersOf(t.Context(), agent.id.AgentID)
				return err == nil && len(at) == len(planes) && m.tunnels.own.Connected(agent.id.AgentID)
			})
		}
	}
	connected()
	await.Until(t, "the host is served", func() bool { return post() == nil })

	var answered atomic.Int64
	var failures sync.Map
	ctx, stop := context.WithCancel(t.Context())
	var visitors sync.WaitGroup
	for range 4 {
		visitors.Go(func() {
			for ctx.Err() == nil {
				if err := post(); err != nil {
					failures.Store(err.Error(), true)
				}
				answered.Add(1)
			}
		})
	}
	steady := func() {
		t.Helper()
		until := answered.Load() + 50
		await.Until(t, "requests go on", func() bool { return answered.Load() >= until })
	}
	for i, g := range gateways {
		steady()
		address := g.address()
		g.stop()
		steady()
		gateways[i] = f.gatewayAt(address)
	}
	for i, m := range planes {
		steady()
		tunnelAt, peer := m.Addrs().Tunnel.String(), m.Addrs().Peer.String()
		m.stop()
		steady()
		planes[i] = f.start(apart, func(c *Config) { c.TunnelListen, c.PeerListen = tunnelAt, peer })
		connected()
	}
	steady()
	stop()
	visitors.Wait()
	failures.Range(func(err, _ any) bool {
		t.Error(err)
		return true
	})
}

// TestListenHTTPS_UDPPort: another port is taken if its number is in use for UDP. A port that the
// operator has chosen is not changed.
func TestListenHTTPS_UDPPort(t *testing.T) {
	var tried []string
	taken := func(ctx context.Context, address string) (net.PacketConn, error) {
		if tried = append(tried, address); len(tried) < 3 {
			return nil, &net.OpError{Op: "listen", Net: "udp", Err: syscall.EADDRINUSE}
		}
		return listenUDP(ctx, address)
	}
	ln, udp, err := listenHTTPS(t.Context(), "127.0.0.1:0", true, taken)
	require.NoError(t, err)
	assert.Len(t, tried, 3)
	assert.Equal(t, ln.Addr().String(), udp.LocalAddr().String())
	require.NoError(t, ln.Close())
	require.NoError(t, udp.Close())

	const anyPort, chosen = "127.0.0.1:0", "127.83.4.9:8443"
	for at, times := range map[string]int{anyPort: anyPortAttempts, chosen: 1} {
		tried = nil
		_, _, err = listenHTTPS(t.Context(), at, true, func(_ context.Context, address string) (net.PacketConn, error) {
			tried = append(tried, address)
			return nil, syscall.EADDRINUSE
		})
		require.ErrorContains(t, err, "--gateway-http3=false")
		assert.Len(t, tried, times)
	}
}

// TestOrdersCertificate: visitors choose the names of their handshakes, and come again after one
// that failed.
func TestOrdersCertificate(t *testing.T) {
	s, ctx, now := storetest.Open(t, &databases, postgres.Chosen(t)), t.Context(), time.Now()
	require.NoError(t, s.InsertAgent(ctx, store.Agent{ID: "a1", Name: "shop", ClusterUID: "u", State: "online", RegisteredAt: now}))
	require.NoError(t, s.Update(ctx, func(tx *store.Tx) error {
		if err := tx.PutRoutes(ctx, "a1", nil, store.RouteSet{Digest: "d", At: now}); err != nil {
			return err
		}
		for _, host := range []string{"www.example.org", "*.example.org"} {
			if err := tx.PutClaim(ctx, store.HostClaim{AgentID: "a1", Host: host, Proof: hosts.TXT, ClaimedAt: now, ProvenAt: now}); err != nil {
				return err
			}
		}
		return nil
	}))
	table := gateway.NewTable(s, time.Now)
	require.NoError(t, table.Refresh(ctx))
	orders := func(host string) bool { return ordersCertificate(ctx, s, table, host) }
	assert.True(t, orders("www.example.org"))
	assert.False(t, orders("any.example.org"), "of a wildcard's there could be any number")
	assert.False(t, orders("www.example.com"))

	require.NoError(t, s.PutCertificateFailure(ctx, store.CertificateFailure{Host: "www.example.org", Failures: 1, NextAt: now}))
	assert.False(t, orders("www.example.org"), "only the keeper tries again")
	require.NoError(t, s.DeleteCertificateFailure(ctx, "www.example.org"))
	assert.True(t, orders("www.example.org"))
}

func TestGatewayHealth_Domain(t *testing.T) {
	dns := dnstest.Start(t)
	resolver := &hosts.Resolver{Servers: []string{dns.Address}}
	f := domainHealth(t.Context(), resolver, "apps.example.com")
	assert.False(t, f.ok)
	assert.Contains(t, f.text, "*.apps.example.com is not in DNS")
	dns.Set(t, "gateway-check.apps.example.com", "A 192.0.2.1")
	assert.Equal(t, &finding{true, "*.apps.example.com leads to 192.0.2.1"}, domainHealth(t.Context(), resolver, "apps.example.com"))
	f = domainHealth(t.Context(), &hosts.Resolver{}, "apps.example.com")
	assert.False(t, f.ok)
	assert.Contains(t, f.text, "could not be asked")
}

func TestGatewayHealth_Hosts(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	tell(shop, routeTo("a.example.org", "/", "web"), routeTo("b.example.org", "/", "web"))
	prove(t, p, shop.id.AgentID, "a.example.org", hosts.TXT, "")
	f, named, unproven, err := proofHealth(t.Context(), p.store, p.clock.now())
	require.NoError(t, err)
	assert.Equal(t, []int{2, 1}, []int{named, unproven})
	assert.True(t, f.ok, "its owner has to act")
	assert.Contains(t, f.text, "1 of 2 hosts are not proven: b.example.org")
	reason := "the CA refuses"
	certificate := func(context.Context, string) (string, string) { return "", reason }
	table := refreshed(t, p)
	f, missing := certificateHealth(t.Context(), table, certificate)
	assert.Equal(t, &finding{false, "1 of 1 hosts have none: a.example.org: the CA refuses"}, f)
	assert.Equal(t, 1, missing)
	reason = ""
	f, missing = certificateHealth(t.Context(), table, certificate)
	assert.True(t, f.ok && missing == 0)
}

// TestReadiness_Gateway: the gateway is a check of readiness, and not a vital one.
func TestReadiness_Gateway(t *testing.T) {
	dns := dnstest.Start(t)
	own := t.TempDir()
	p := start(t, func(c *Config) {
		c.Gateway = GatewayConfig{
			Domain: "apps.example.com", CA: GatewayInternal, HTTPSListen: "127.0.0.1:0", HTTPListen: "127.0.0.1:0", Resolvers: []string{dns.Address},
			Certificates: own,
		}
	})
	r := p.readyWhen("looked at", func(r readiness) bool { return r.Ready && r.Checks["gateway-proofs"] != "" })
	assert.True(t, r.Degraded)
	assert.Contains(t, r.Checks["gateway"], "ok: 0 hosts")
	assert.Contains(t, r.Checks["gateway-domain"], "failed: *.apps.example.com is not in DNS")
	assert.Contains(t, r.Checks["gateway-certificates"], "ok: ")
	shop := p.registered("shop")
	tell(shop, routeTo(controlapi.GivenHost("web", "n", shop.id.AgentID, "apps.example.com"), "/", "web"))
	p.readyWhen("serving it", func(r readiness) bool { return r.Checks["gateway"] == "ok: 1 hosts are served" })
	state, err := shop.client.Routes(t.Context())
	require.NoError(t, err)
	assert.Equal(t, shop.id.AgentID, state.Agent)
	require.Len(t, state.Hosts, 1)
	assert.Contains(t, []string{"ready", "pending"}, state.Hosts[0].Certificate)

	require.NoError(t, os.WriteFile(filepath.Join(own, "apps.crt"), []byte("no certificate"), 0o600))
	require.Error(t, p.public.certs.ReadOwn(t.Context()))
	p.public.lookAtHealth(t.Context())
	assert.Contains(t, p.health.readiness(t.Context()).Checks["gateway-certificates"], "failed: the gateway's certificate "+filepath.Join(own, "apps.crt"))
}

// TestRoutes_MissingCertificate: the reason comes from the database, so that each control plane has
// it.
func TestRoutes_MissingCertificate(t *testing.T) {
	p := start(t, func(c *Config) {
		c.Gateway = GatewayConfig{Domain: "apps.example.com", CA: "https://ca.invalid/directory", HTTPSListen: "127.0.0.1:0"}
	})
	shop := p.registered("shop")
	const host = "www.example.org"
	_, err := p.admin.Gateway.Grant(t.Context(), host, "shop") // a proof for which DNS is not asked
	require.NoError(t, err)
	tell(shop, routeTo(host, "/", "web"))
	failed := store.CertificateFailure{Host: host, Failures: 1, Reason: "the CA refuses", NextAt: time.Now().Add(time.Hour)}
	want := "the gateway has no new certificate for the host, and tries again: the CA refuses"
	await.Until(t, "the agent and the operator see why", func() bool {
		// A keeper that has not heard of the host yet forgets its failures, once.
		require.NoError(t, p.store.PutCertificateFailure(t.Context(), failed))
		state, err := shop.client.Routes(t.Context())
		list := p.routes("shop")
		return err == nil && len(state.Hosts) == 1 && state.Hosts[0].Certificate == "failed" && state.Hosts[0].Reason == want &&
			len(list) == 1 && list[0].Reason == want
	})
}
