package runnertest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/contract/checked"
)

// The identities of the fake agent and its Runner.
const (
	AgentID     = "a1"
	AgentName   = "fake-cluster"
	ServerName  = AgentID + ".agents.example.com"
	TrustDomain = "example.com"
	RunnerName  = "tester"
)

// Agent serves a backend. It can be stopped and started again on the same address, like an agent
// that is replaced.
type Agent struct {
	Backend *FakeBackend
	CA      *CA
	Address string
	Log     zerolog.Logger
	Policy  backend.Policy  // AllowAll unless changed; nil denies every call. From the next Start
	Audit   backend.Auditor // none when nil; from the next Start
	// Recorder may be nil; it holds from the next Start.
	Recorder backend.Recorder
	// Approvals may be nil; it holds from the next Start.
	Approvals backend.Approvals
	Limits    transport.Limits // the defaults when zero; from the next Start
	Drain     time.Duration    // of Stop; a second unless changed; from the next Start
	// Kubernetes may be nil; it holds from the next Start.
	Kubernetes backend.KubernetesAPI

	t       testing.TB
	tls     *tls.Config
	changed func() <-chan struct{}
	stop    func()
}

// Start serves a backend until the test ends.
func Start(t testing.TB, backend *FakeBackend) *Agent {
	t.Helper()
	return StartWith(t, backend, nil, func(*transport.TLSConfig) {})
}

// StartWith is like Start. It also takes a function that changes the TLS configuration, and the
// source of the signal that makes the agent check its open connections again.
func StartWith(t testing.TB, backend *FakeBackend, changed func() <-chan struct{}, change func(*transport.TLSConfig)) *Agent {
	t.Helper()
	a := newWith(t, backend, changed, change)
	a.Start()
	return a
}

// New returns an agent that does not serve before its Start, so that a test can set fields which
// hold from then on. An unused server costs as much to create as any other.
func New(t testing.TB, backend *FakeBackend) *Agent {
	t.Helper()
	return newWith(t, backend, nil, func(*transport.TLSConfig) {})
}

func newWith(t testing.TB, backend *FakeBackend, changed func() <-chan struct{}, change func(*transport.TLSConfig)) *Agent {
	t.Helper()
	ca := NewCA(t)
	cert := ca.Issue(t, credentials.AgentURI(TrustDomain, AgentID), ServerName, runnerapi.KubernetesServerName(ServerName))
	a := &Agent{Backend: backend, CA: ca, Address: loopback() + ":0", Log: zerolog.Nop(), Policy: AllowAll{}, Drain: time.Second, t: t, changed: changed}
	config := transport.TLSConfig{
		Certificate: func() (*tls.Certificate, error) { return &cert, nil },
		Roots:       func() *x509.CertPool { return ca.Pool },
		TrustDomain: TrustDomain,
	}
	change(&config)
	a.tls = transport.TLS(config)
	t.Cleanup(a.Stop)
	return a
}

// loopback returns an address that no other process of this machine connects from or listens on. A
// port of it is still free when the agent serves again.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+mathrand.N(254), mathrand.N(256), 1+mathrand.N(254)) //nolint:gosec // not a secret
}

// Start serves again on the same address.
func (a *Agent) Start() {
	a.t.Helper()
	ln := a.listen()
	a.Address = ln.Addr().String()
	a.StartOn(ln)
}

// listen retries while a process that was just started still holds the port: it inherits all open
// files of this one until it executes its own program.
func (a *Agent) listen() net.Listener {
	a.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", a.Address)
		if err == nil {
			return ln
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(deadline) {
			a.t.Fatalf("listen on %s: %v", a.Address, err)
		}
	}
}

// StartOn serves on a listener that need not be a port, such as a tunnel's.
func (a *Agent) StartOn(ln net.Listener) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	// The handler is created before any client is admitted. That takes up to a second of processor
	// time under the race detector, in which connected clients would wait.
	b := a.Backend
	handler := server.New(a.Policy, server.Config{
		Apps: b.Apps(), Sessions: b.Sessions(), Monitoring: b.Monitoring(), ConfigMaps: b.ConfigMaps(), Secrets: b.Secrets(), Namespaces: b.Namespaces(),
		Cluster: b.Cluster(), Nodes: b.Nodes(), Events: b.Events(), Manifests: b.Manifests(), Routes: b.Routes(), Releases: b.Releases(), Builds: b.Builds(),
		Sources: b.Sources(), Kubernetes: a.Kubernetes,
		Journal: a.Backend.journal, Outcomes: a.Backend, Audit: a.Audit, Recorder: a.Recorder, Approvals: a.Approvals, Limits: a.Limits,
		TrustDomain: TrustDomain, Version: "v0.0.0-fake", Log: a.Log,
	})
	go func() {
		done <- transport.Serve(ctx, ln, transport.ServeConfig{
			Handler: handler,
			TLS:     a.tls, Limits: a.Limits, Changed: a.changed, Drain: a.Drain, Log: a.Log,
		})
	}()
	a.stop = func() {
		cancel()
		if err := <-done; err != nil {
			a.t.Errorf("the fake agent: %v", err)
		}
	}
}

// Stop drains and stops the agent.
func (a *Agent) Stop() {
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
}

// ClientConfig returns the configuration of a Runner that may call this agent.
func (a *Agent) ClientConfig() client.Config {
	cert := a.CA.Issue(a.t, credentials.RunnerURI(TrustDomain, RunnerName))
	return client.Config{
		AgentID: AgentID, ServerName: ServerName, EdgeAddresses: []string{a.Address},
		TrustDomain: TrustDomain, Roots: a.CA.Pool,
		Certificate: func() (*tls.Certificate, error) { return &cert, nil },
		Around:      checked.Around(a.t),
	}
}

// Client returns a client of this agent, which is closed when the test ends.
func (a *Agent) Client() *client.Client {
	a.t.Helper()
	return a.ClientWith(func(*client.Config) {})
}

// ClientWith returns a client with a changed configuration.
func (a *Agent) ClientWith(change func(*client.Config)) *client.Client {
	a.t.Helper()
	config := a.ClientConfig()
	change(&config)
	c, err := client.New(config)
	if err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(c.Close)
	return c
}

// ClientAs returns the client of the Runner with this certificate.
func (a *Agent) ClientAs(cert tls.Certificate) *client.Client {
	a.t.Helper()
	return a.ClientWith(func(c *client.Config) {
		c.Certificate = func() (*tls.Certificate, error) { return &cert, nil }
	})
}
