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
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway/webcerts"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// apart leaves the public to gateways of their own.
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
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		assert.NoError(f.t, await.Receive(f.t, done, "the end of the gateway"))
	})
	f.t.Cleanup(stop)
	r := &runningGateway{g, stop}
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
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { _ = handler.Serve(ctx, tun.Public(), time.Second) })
		f.t.Cleanup(func() { cancel(); running.Wait() })
	}
	tell(agent, routeTo(host, "/", "web"))
	prove(f.t, planes[0].plane, agent.id.AgentID, host, hosts.TXT, "")
}

// roots are those of the gateways' own CA.
func (f *group) roots(m *member) *x509.CertPool {
	f.t.Helper()
	storage, err := datadir.GatewayStorage(m.cfg.data(), m.store, time.Now)
	require.NoError(f.t, err)
	text, err := (&webcerts.Internal{Storage: storage, Now: time.Now}).Root(f.t.Context())
	require.NoError(f.t, err)
	roots := x509.NewCertPool()
	require.True(f.t, roots.AppendCertsFromPEM(text))
	return roots
}

// balanced is a client behind a load balancer that goes on to the next gateway when one accepts no
// connection.
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
	client := balanced(f.roots(planes[0]), gateways[0].address(), gateways[1].address())
	t.Cleanup(client.CloseIdleConnections)
	get := func() error {
		resp, err := client.Get("https://" + host + "/")
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
	await.Until(t, "the host is served", func() bool { return get() == nil })

	var answered atomic.Int64
	var failures sync.Map
	ctx, stop := context.WithCancel(t.Context())
	var visitors sync.WaitGroup
	for range 4 {
		visitors.Go(func() {
			for ctx.Err() == nil {
				if err := get(); err != nil {
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

// TestGateway_KeyIsNotTheCAs: the CA's key does not follow from the gateway's, and control planes
// know it as a gateway's alone.
func TestGateway_KeyIsNotTheCAs(t *testing.T) {
	t.Parallel()
	f := newGroup(t)
	m := f.start(apart)
	_, err := NewGatewayServer(t.Context(), GatewayServerConfig{Gateway: GatewayConfig{Domain: "apps.example.com"}})
	require.ErrorContains(t, err, "--database")
	require.ErrorContains(t, err, "--link-key-file")
	key, err := datadir.GatewayKey(datadir.Data{CAKey: f.key})
	require.NoError(t, err)
	assert.NotEqual(t, f.key.Text(), key.Text())
	link, err := linkOf(key, m.cfg.TrustDomain, time.Now)
	require.NoError(t, err)
	own, err := link.ForGateway()
	require.NoError(t, err)
	own.InsecureSkipVerify = true // the handshake is the test
	own.NextProtos = []string{"pipeops-peer/1"}
	conn, err := tls.Dial("tcp", m.Addrs().Peer.String(), own)
	if err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	require.Error(t, err, "it is no control plane")
}
