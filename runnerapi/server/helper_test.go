package server_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// The client is the same to a Runner as the backend is to the agent.
var (
	_ backend.Apps       = client.Apps{}
	_ backend.Secrets    = client.Secrets{}
	_ backend.ConfigMaps = client.ConfigMaps{}
	_ backend.Namespaces = client.Namespaces{}
	_ backend.Sources    = client.Sources{}
	_ backend.Cluster    = client.Cluster{}
	_ backend.Events     = client.Events{}
	_ backend.Routes     = client.Routes{}
)

// served is its own server beside a fake agent, with the agent's identity.
type served struct {
	agent   *runnertest.Agent
	address string
	t       *testing.T
}

func (s *served) Client() *client.Client {
	return s.agent.ClientWith(func(c *client.Config) {
		c.EdgeAddresses = []string{s.address}
		c.Around = nil // it has no journal, so its writes are not operations
	})
}

// serveTLS serves Apps that are not the agent's own.
func serveTLS(t *testing.T, agent *runnertest.Agent, apps backend.Apps) *served {
	t.Helper()
	cert := agent.CA.Issue(t, credentials.AgentURI(runnertest.TrustDomain, runnertest.AgentID), runnertest.ServerName)
	return serveWith(t, agent, apps, cert, zerolog.Nop())
}

func serveWith(t *testing.T, agent *runnertest.Agent, apps backend.Apps, cert tls.Certificate, log zerolog.Logger) *served {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := agent.Backend
	await.Background(t, "the server", func(ctx context.Context) error {
		return transport.Serve(ctx, ln, transport.ServeConfig{
			Handler: server.New(runnertest.AllowAll{}, server.Config{
				Apps: apps, Secrets: b.Secrets(), Namespaces: b.Namespaces(), Cluster: b.Cluster(), TrustDomain: runnertest.TrustDomain, Log: log,
			}),
			TLS: transport.TLS(transport.TLSConfig{
				Certificate: func() (*tls.Certificate, error) { return &cert, nil },
				Roots:       func() *x509.CertPool { return agent.CA.Pool },
				TrustDomain: runnertest.TrustDomain,
			}),
			Drain: time.Second, Log: log,
		})
	})
	return &served{agent: agent, address: ln.Addr().String(), t: t}
}

// verified is a request of a Runner whose certificate was verified.
func verified(t *testing.T, method, path string) *http.Request {
	t.Helper()
	cert := runnertest.NewCA(t).Issue(t, credentials.RunnerURI(runnertest.TrustDomain, runnertest.RunnerName))
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	require.NoError(t, err)
	r := httptest.NewRequest(method, path, nil)
	r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{leaf}}}
	return r
}
