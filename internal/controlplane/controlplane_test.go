package controlplane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// answer serves TLS on an agent's tunnel that says the agent's name.
func (c *cluster) answer(t *tunnel.Tunnel) {
	cfg := c.tlsConfig()
	server := &http.Server{ReadHeaderTimeout: time.Second, TLSConfig: cfg, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "I am "+c.name)
	})}
	await.Background(c.t, "the server", func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { _ = server.Close() })
		_ = server.ServeTLS(t.Listener(), "", "")
		return nil
	})
}

// throughEdge asks an agent as a Runner would.
func (p *plane) throughEdge(c *cluster) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.ca.Pool(), ServerName: c.id.ServerName},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, p.Advertised().Edge)
		}}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.id.ServerName, nil)
	require.NoError(p.t, err)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestEdge_ReachesAgents(t *testing.T) {
	p := start(t)
	shop, bank := p.registered("shop"), p.registered("bank")
	_, err := p.throughEdge(shop)
	require.ErrorContains(t, err, "unrecognized name", "its tunnel is not up yet")
	var downs []func()
	for _, c := range []*cluster{shop, bank} {
		tun, down := c.connect()
		c.answer(tun)
		downs = append(downs, down)
	}
	for _, c := range []*cluster{shop, bank} {
		await.Until(t, c.name+" is online", func() bool { return p.state(c.id.AgentID) == announce.StateOnline })
		got, err := p.throughEdge(c)
		require.NoError(t, err)
		assert.Equal(t, "I am "+c.name, got)
	}
	downs[0]()
	await.Until(t, "shop is offline", func() bool { return p.state(shop.id.AgentID) == announce.StateOffline })
	assert.Equal(t, announce.StateOnline, p.state(bank.id.AgentID))
	_, err = p.throughEdge(shop)
	require.ErrorContains(t, err, "unrecognized name")
}

func TestConfig_ReportsAllMistakes(t *testing.T) {
	cfg := Config{APIListen: "8443", AdvertiseAPI: "http://x", AdvertiseEdge: "x", AgentsDomain: "A B", HeartbeatInterval: -1,
		BrokerURLs: []string{"amqp://u:hunter2@"}}
	_, err := New(t.Context(), cfg)
	for _, flag := range []string{"--data-dir", "--api-listen", "--advertise-api", "--advertise-edge", "--agents-domain", "--heartbeat-interval", "broker URL 1"} {
		require.ErrorContains(t, err, flag)
	}
	assert.NotContains(t, err.Error(), "hunter2")
}

func TestNew_Refused(t *testing.T) {
	p := start(t)
	_, err := New(t.Context(), p.cfg)
	require.ErrorContains(t, err, "another control plane serves this data directory")

	taken := Config{DataDir: t.TempDir(), APIListen: p.Addrs().API.String()}
	_, err = New(t.Context(), taken)
	require.ErrorContains(t, err, "--api-listen")

	p.registered("shop")
	moved := p.cfg
	p.stop()
	moved.TrustDomain = "elsewhere"
	_, err = New(t.Context(), moved)
	require.ErrorContains(t, err, "1 agents hold certificates for the agents domain agents.pipeops.internal and the trust domain pipeops.internal")

	open := t.TempDir()
	require.NoError(t, os.Chmod(open, 0o777))
	_, err = New(t.Context(), Config{DataDir: open})
	require.ErrorContains(t, err, "chmod 700")
}

func TestNew_AnnouncesNewEdge(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	cfg := p.cfg
	p.stop()
	cfg.AdvertiseEdge = "edge.example.com:8444"
	moved := start(t, func(other *Config) { *other = cfg })
	await.Until(t, "announced", func() bool { return len(moved.queued()) == 2 })
	agent, err := moved.queued()[1].Agent()
	require.NoError(t, err)
	assert.Equal(t, announce.Endpoint{Address: "edge.example.com:8444", ServerName: c.id.ServerName}, agent.Endpoints[0])
}

func TestRunnerCreate(t *testing.T) {
	urlFile := filepath.Join(t.TempDir(), "url")
	require.NoError(t, os.WriteFile(urlFile, []byte("amqps://runner:hunter2@mq/\n"), 0o600))
	p := start(t, func(c *Config) { c.RunnerBroker.URLFile = urlFile })
	made, err := p.admin.Runners.Create(t.Context(), "builder", time.Hour, false)
	require.NoError(t, err)
	assert.Equal(t, p.Advertised().Edge, made.Edge)
	assert.Equal(t, credentials.Broker{URL: "amqps://runner:hunter2@mq/"}, made.Broker)
	require.NoError(t, os.Remove(urlFile))
	_, err = p.admin.Runners.Create(t.Context(), "other", time.Hour, false)
	require.ErrorContains(t, err, "--runner-broker-url-file")
}

// errAway is what a server that is not there is told by.
var errAway = fmt.Errorf("open the database: %w", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})

// TestNew_WaitsForDatabase: the database is out of reach at the first try, as after a power cut
// that took both.
func TestNew_WaitsForDatabase(t *testing.T) {
	d := databases.Database(t)
	at, err := url.Parse(d.URL())
	require.NoError(t, err)
	between, err := faultproxy.Listen(t.Context(), "to the database", at.Host)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, between.Close()) })
	between.Set(faultproxy.Condition{Cut: true})
	tries := 0
	start(t, func(c *Config) {
		c.Database = store.Postgres{URL: d.URLOver(between.Port()), Log: zerolog.Nop()}
		c.Log = zerolog.New(io.Discard).Hook(zerolog.HookFunc(func(_ *zerolog.Event, _ zerolog.Level, message string) {
			if message == withoutDatabase {
				tries++
				between.Set(faultproxy.Condition{})
			}
		}))
	})
	assert.Equal(t, 1, tries)
}

func TestAwaitDatabase_GivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		_, err := awaitDatabase(t.Context(), zerolog.Nop(), func() (*ControlPlane, error) { return nil, errAway })
		require.ErrorIs(t, err, errAway)
		assert.ErrorContains(t, err, "waited")
		assert.InDelta(t, startPatience, time.Since(started), float64(5*time.Second))
	})
}

func TestAwaitDatabase_OtherErrors(t *testing.T) {
	for name, fault := range map[string]error{
		"another's certificate": fmt.Errorf("open: %w", errors.Join(&pgconn.ConnectError{}, &tls.CertificateVerificationError{Err: errors.New("unknown authority")})),
		"a wrong password":      &pgconn.PgError{Code: "28P01"},
		"a port in use":         fmt.Errorf("--api-listen: %w", &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}),
	} {
		tries := 0
		_, err := awaitDatabase(t.Context(), zerolog.Nop(), func() (*ControlPlane, error) { tries++; return nil, fault })
		require.ErrorIs(t, err, fault, name)
		assert.Equal(t, 1, tries, name)
	}
}

func TestAwaitDatabase_Cancelled(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	_, err := awaitDatabase(ctx, zerolog.Nop(), func() (*ControlPlane, error) { stop(); return nil, errAway })
	require.Error(t, err)
}
