package controlplane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// clock runs with the real one, ahead or behind.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

func (c *clock) forward(d time.Duration) { c.offset.Add(int64(d)) }

// plane is a control plane under test.
type plane struct {
	*ControlPlane
	t     *testing.T
	admin *administration.Admin
	clock *clock
	stop  func()
}

// start runs a control plane in its own directory until the test ends.
func start(t *testing.T, change ...func(*Config)) *plane {
	t.Helper()
	return startOn(t, postgres.Chosen(t), change...)
}

// startOn is start with the engine of the database.
func startOn(t *testing.T, on postgres.Engine, change ...func(*Config)) *plane {
	t.Helper()
	p := &plane{t: t, clock: &clock{}}
	cfg := Config{
		DataDir: t.TempDir(), APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0",
		OfflineGrace: 50 * time.Millisecond, Log: zerolog.Nop(), Now: p.clock.now,
	}
	cfg.Database = newDatabase(t, on)
	for _, c := range change {
		c(&cfg)
	}
	var err error
	p.ControlPlane, err = New(t.Context(), cfg)
	require.NoError(t, err)
	p.admin, err = administration.Open(t.Context(), cfg.data(), p.clock.now)
	require.NoError(t, err)
	end := await.Background(t, "Run", p.Run)
	p.stop = sync.OnceFunc(func() {
		end()
		assert.NoError(t, p.admin.Close())
	})
	t.Cleanup(p.stop)
	return p
}

func (p *plane) token(change ...func(*administration.TokenOptions)) controlapi.Token {
	p.t.Helper()
	opts := administration.TokenOptions{TTL: time.Hour}
	for _, c := range change {
		c(&opts)
	}
	token, _, err := p.admin.Tokens.Create(p.t.Context(), opts)
	require.NoError(p.t, err)
	return token
}

// cluster is an agent of a test: a key, a client, and after registering an
// identity.
type cluster struct {
	t         *testing.T
	p         *plane
	name, uid string
	key       *ecdsa.PrivateKey
	id        controlapi.Identity
	tls       atomic.Pointer[tls.Config]
	client    *controlapi.Client
}

func (p *plane) cluster(name string) *cluster {
	p.t.Helper()
	c := &cluster{t: p.t, p: p, name: name, uid: "uid-of-" + name, key: selfsigned.Key(p.t)}
	trust := controlapi.Trust{Fingerprint: controlapi.Fingerprint(p.ca.Certificate()), Now: p.clock.now}
	cfg, err := trust.TLSConfig(p.Advertised().API)
	require.NoError(p.t, err)
	c.tls.Store(cfg)
	c.client, err = controlapi.NewClient(controlapi.ClientConfig{
		URL: p.Advertised().API, TLS: c.tls.Load, Log: zerolog.Nop(), Now: p.clock.now, Retries: -1, Origin: c.origin,
	})
	require.NoError(p.t, err)
	p.t.Cleanup(c.client.Close)
	return c
}

// origin is in the cluster that the agent registered from.
func (c *cluster) origin() controlapi.Origin { return controlapi.Origin{ClusterUID: c.uid} }

func csr(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

func (c *cluster) request() controlapi.RegisterRequest {
	return controlapi.RegisterRequest{
		Name: c.name, ClusterUID: c.uid, CSR: csr(c.t, c.key), AgentVersion: "1.0", RunnerAPIVersion: "v1",
		Clock: c.p.clock.now(), KubernetesVersion: "v1.37", Labels: map[string]string{"own": "label"},
	}
}

func (c *cluster) register(token controlapi.Token) error {
	c.t.Helper()
	id, err := c.client.Register(c.t.Context(), token, c.request())
	if err == nil {
		c.adopt(id, c.key)
	}
	return err
}

// adopt uses an identity from now on.
func (c *cluster) adopt(id controlapi.Identity, key *ecdsa.PrivateKey) {
	c.t.Helper()
	c.id, c.key = id, key
	c.tls.Store(c.tlsConfig())
}

func (c *cluster) tlsConfig() *tls.Config {
	c.t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(c.key)
	require.NoError(c.t, err)
	cert, err := tls.X509KeyPair([]byte(c.id.Certificate), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	require.NoError(c.t, err)
	roots := x509.NewCertPool()
	require.True(c.t, trustanchor.Append(roots, []byte(c.id.CABundle)))
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{cert}, Time: c.p.clock.now}
}

// registered makes a cluster that has registered.
func (p *plane) registered(name string) *cluster {
	p.t.Helper()
	c := p.cluster(name)
	require.NoError(p.t, c.register(p.token()))
	return c
}

func (c *cluster) beat() error {
	c.t.Helper()
	_, err := c.client.Heartbeat(c.t.Context(), c.heartbeat())
	return err
}

func (c *cluster) heartbeat() controlapi.Heartbeat {
	return controlapi.Heartbeat{
		Clock: c.p.clock.now(), AgentVersion: "1.0", RunnerAPIVersion: "v1", KubernetesVersion: "v1.37",
		Capacity: controlapi.Capacity{Nodes: 1, CPUMillis: 2000, MemoryBytes: 1 << 30, Pods: 110}, TunnelPhase: "connected",
	}
}

// connect keeps the agent's tunnel up until disconnect is called.
func (c *cluster) connect(change ...func(*tunnel.Config)) (t *tunnel.Tunnel, disconnect func()) {
	c.t.Helper()
	cfg := tunnel.Config{
		ServerAddress: c.id.Tunnel.Address, ServerName: c.id.Tunnel.ServerName, AgentID: c.id.AgentID,
		TLS: func(context.Context) (*tls.Config, error) { return c.tls.Load(), nil }, Log: zerolog.Nop(),
		Cluster: func() string { return c.uid },
		Backoff: tunnel.Backoff{Initial: 20 * time.Millisecond, Max: 200 * time.Millisecond},
	}
	for _, change := range change {
		change(&cfg)
	}
	t, err := tunnel.New(cfg)
	require.NoError(c.t, err)
	return t, await.Background(c.t, "the tunnel", func(ctx context.Context) error {
		if err := t.Run(ctx); !tunnel.IsFinal(err) {
			return err
		}
		return nil
	})
}

// client calls the control plane's API with certificates, or with none.
func (p *plane) client(certificates ...tls.Certificate) *http.Client {
	return p.withTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.ca.Pool(), Certificates: certificates})
}

func (p *plane) withTLS(config *tls.Config) *http.Client {
	transport := &http.Transport{TLSClientConfig: config}
	p.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

// call calls the control plane and returns the answer, whose body is read. A call with a body has
// JSON in it.
func (p *plane) call(client *http.Client, method, path, body string, header ...string) *http.Response {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), method, p.Advertised().API+path, strings.NewReader(body))
	require.NoError(p.t, err)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(r)
	require.NoError(p.t, err)
	text, err := io.ReadAll(resp.Body)
	require.NoError(p.t, errors.Join(err, resp.Body.Close()))
	resp.Body = io.NopCloser(bytes.NewReader(text))
	return resp
}

// refusal returns the problem of an answer; nil for one that is none.
func refusal(resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return problem.Read(resp)
}

// queued lists what waits to be announced, as TYPE SEQUENCE.
func (p *plane) queued() []announce.Event {
	p.t.Helper()
	list, err := p.store.Outbox(p.t.Context(), 1000)
	require.NoError(p.t, err)
	events := make([]announce.Event, len(list))
	for i, q := range list {
		events[i] = q.Event
	}
	return events
}

func typesOf(events []announce.Event) []announce.Type {
	types := make([]announce.Type, len(events))
	for i, e := range events {
		types[i] = e.Type
	}
	return types
}

func (p *plane) state(id string) announce.State {
	p.t.Helper()
	a, err := p.store.Agent(p.t.Context(), id)
	require.NoError(p.t, err)
	return a.State
}

// requireProblem is problemtest.Refused by a shorter name.
var requireProblem = problemtest.Refused

// callsOf are METHOD PATH of each call in an OpenAPI document.
func callsOf(t *testing.T, document io.Reader) (calls []string) {
	t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	require.NoError(t, json.NewDecoder(document).Decode(&doc))
	for path, methods := range doc.Paths {
		for method := range methods {
			calls = append(calls, strings.ToUpper(method)+" "+path)
		}
	}
	return calls
}

// What the tests share.
var (
	databases postgres.Shared
	rabbit    broker.Shared
)

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop, rabbit.Stop).Run()) }

// newDatabase makes an empty database on PostgreSQL. SQLite needs none: its file is in the data
// directory.
func newDatabase(t testing.TB, on postgres.Engine) store.Postgres {
	t.Helper()
	if on == postgres.SQLite {
		return store.Postgres{}
	}
	return store.Postgres{URL: databases.Database(t).URL(), Log: zerolog.Nop()}
}
