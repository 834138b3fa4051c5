package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	agentapi "github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// served is an agent's end of the tunnel with a Runner API that commands nothing. It
// does about heartbeats and refresh requests what the agent does.
type served struct {
	*cluster
	backend *runnertest.FakeBackend

	mu      sync.Mutex
	answer  controlapi.HeartbeatAnswer
	changed chan struct{}
}

func (c *cluster) serve() *served {
	c.t.Helper()
	return c.serveAudited(nil)
}

// serveAudited is serve with an audit log.
func (c *cluster) serveAudited(audit agentapi.Auditor) *served {
	c.t.Helper()
	s := &served{cluster: c, backend: runnertest.NewBackend(), changed: make(chan struct{})}
	require.NoError(c.t, s.hear(c.t.Context()))
	tun, _ := c.connect()
	await.Background(c.t, "the Runner API", func(ctx context.Context) error {
		return transport.Serve(ctx, tun.Listener(), transport.ServeConfig{
			Handler: server.New(runnertest.AllowAll{}, server.Config{
				Apps: s.backend.Apps(), Monitoring: s.backend.Monitoring(), Secrets: s.backend.Secrets(), ConfigMaps: s.backend.ConfigMaps(), Namespaces: s.backend.Namespaces(), Cluster: s.backend.Cluster(), Nodes: s.backend.Nodes(), Sources: s.backend.Sources(), Outcomes: s.backend, Audit: audit,
				TrustDomain: c.id.TrustDomain, Log: zerolog.Nop(),
			}),
			TLS: s.tls(), Changed: s.next, Drain: time.Second, Log: zerolog.Nop(),
		})
	})
	await.Until(c.t, "the agent is online", func() bool { return c.p.tunnels.own.Connected(c.id.AgentID) })
	return s
}

func (s *served) tls() *tls.Config {
	return transport.TLS(transport.TLSConfig{
		Certificate: func() (*tls.Certificate, error) { return &s.cluster.tls.Load().Certificates[0], nil },
		Roots:       func() *x509.CertPool { return s.cluster.tls.Load().RootCAs },
		TrustDomain: s.id.TrustDomain, Time: s.p.clock.now, Refresh: s.hear,
		Revoked: func(serial string) bool { return slices.Contains(s.heard().RevokedRunners, serial) },
		Labels:  func() map[string]string { return s.heard().Labels },
	})
}

// hear sends a heartbeat and takes its answer in.
func (s *served) hear(ctx context.Context) error {
	answer, err := s.client.Heartbeat(ctx, s.heartbeat())
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *served) heard() controlapi.HeartbeatAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer
}

func (s *served) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

// visit is a client of the agent over the edge.
func (s *served) visit(credentials credentials.Credentials) *client.Client {
	s.t.Helper()
	cert, err := credentials.TLSCertificate()
	require.NoError(s.t, err)
	roots, err := credentials.Roots()
	require.NoError(s.t, err)
	c, err := client.New(client.Config{
		AgentID: s.id.AgentID, ServerName: s.id.ServerName, EdgeAddresses: []string{credentials.Edge}, TrustDomain: credentials.TrustDomain,
		Roots: roots, Certificate: func() (*tls.Certificate, error) { return &cert, nil },
	})
	require.NoError(s.t, err)
	s.t.Cleanup(c.Close)
	return c
}

// follow follows a log until it ends.
func (s *served) follow(c *client.Client) (ended chan error) {
	s.t.Helper()
	web := runnerapi.Key{Namespace: "production", Name: "web"}
	ctx, cancel := context.WithCancel(s.t.Context())
	s.t.Cleanup(cancel)
	_, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "nginx"}, runnerapi.WriteOptions{})
	require.NoError(s.t, err)
	logs := func() (n int) {
		for _, call := range s.backend.Calls() {
			if call.Verb == "Apps.Logs" {
				n++
			}
		}
		return n
	}
	before := logs()
	ended = make(chan error, 1)
	go func() {
		ended <- c.Apps().Logs(ctx, web, runnerapi.LogOptions{Follow: true}, func(runnerapi.LogLine) error { return nil })
	}()
	await.Until(s.t, "the log is followed", func() bool { return logs() > before })
	return ended
}
