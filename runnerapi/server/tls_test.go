package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestRunnerCertificate_RefusesOthers(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	other := runnertest.NewCA(t)
	domain := runnertest.TrustDomain
	two := credentials.RunnerURI(domain, "x")
	two.RawQuery = "a=b"
	for name, tc := range map[string]struct {
		cert tls.Certificate
		code runnerapi.Code
	}{
		"an agent's certificate":     {agent.CA.Issue(t, credentials.AgentURI(domain, "a2")), client.CodeRefused},
		"another trust domain":       {agent.CA.Issue(t, credentials.RunnerURI("example.org", "tester")), client.CodeRefused},
		"another CA":                 {other.Issue(t, credentials.RunnerURI(domain, "tester")), client.CodeRefused},
		"a path below":               {agent.CA.Issue(t, credentials.RunnerURI(domain, "a/b")), client.CodeRefused},
		"no name":                    {agent.CA.Issue(t, credentials.RunnerURI(domain, "")), client.CodeRefused},
		"no SPIFFE ID":               {agent.CA.Issue(t, &url.URL{Scheme: "https", Host: domain, Path: "/runner/tester"}), client.CodeRefused},
		"a query":                    {agent.CA.Issue(t, two), client.CodeRefused},
		"expired":                    {agent.CA.IssueAt(t, time.Now().Add(-2*time.Hour), credentials.RunnerURI(domain, "tester")), client.CodeUntrusted},
		"a clock that is two h slow": {agent.CA.IssueAt(t, time.Now().Add(2*time.Hour), credentials.RunnerURI(domain, "tester")), client.CodeUntrusted},
	} {
		t.Run(name, func(t *testing.T) {
			config := agent.ClientConfig()
			config.Certificate = func() (*tls.Certificate, error) { return &tc.cert, nil }
			var said strings.Builder
			log := zerolog.New(&said)
			config.Log = &log
			c, err := client.New(config)
			require.NoError(t, err)
			defer c.Close()
			_, err = c.Cluster().Get(ctxFor(t))
			assert.Equal(t, tc.code, codeOf(t, err), "%v", err)
			assert.Empty(t, said.String(), "it is final: the client does not try again")
		})
	}
	assert.Empty(t, agent.Backend.Calls())
}

// A thief of each other CA's key issues a Runner's certificate.
func TestRunnerCertificate_RefusesOtherRoles(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	for _, signer := range othersThan(trustanchor.RoleRunner) {
		cert := agent.CA.IssueBy(t, signer, credentials.RunnerURI(runnertest.TrustDomain, "tester"))
		config := agent.ClientConfig()
		config.Certificate = func() (*tls.Certificate, error) { return &cert, nil }
		c, err := client.New(config)
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Cluster().Get(ctxFor(t))
		assert.Equal(t, client.CodeRefused, codeOf(t, err), "%s: %v", signer, err)
	}
	assert.Empty(t, agent.Backend.Calls())
}

// Such a thief issues an agent's certificate.
func TestAgentCertificate_RefusesOtherRoles(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	for _, signer := range othersThan(trustanchor.RoleAgent) {
		cert := agent.CA.IssueBy(t, signer, credentials.AgentURI(runnertest.TrustDomain, "a1"), runnertest.ServerName)
		_, err := serveWith(t, agent, agent.Backend.Apps(), cert, zerolog.Nop()).Client().Cluster().Get(ctxFor(t))
		assert.Equal(t, client.CodeUntrusted, codeOf(t, err), "%s: %v", signer, err)
	}
	assert.Empty(t, agent.Backend.Calls())
}

// othersThan returns all CAs but the one that signs for a role.
func othersThan(role string) []string {
	all := []string{runnertest.RoleRoot, trustanchor.RoleAgent, trustanchor.RoleRunner, trustanchor.RoleOperator, trustanchor.RoleServer, trustanchor.RoleControlPlane}
	return slices.DeleteFunc(all, func(r string) bool { return r == role })
}

func TestAgentCertificate_RefusesOthers(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	domain := runnertest.TrustDomain
	for name, cert := range map[string]tls.Certificate{
		"another CA":        runnertest.NewCA(t).Issue(t, credentials.AgentURI(domain, "a1"), runnertest.ServerName),
		"another agent":     agent.CA.Issue(t, credentials.AgentURI(domain, "a2"), runnertest.ServerName),
		"another name":      agent.CA.Issue(t, credentials.AgentURI(domain, "a1"), "a2.agents.example.com"),
		"a Runner":          agent.CA.Issue(t, credentials.RunnerURI(domain, "a1"), runnertest.ServerName),
		"out of its time":   agent.CA.IssueAt(t, time.Now().Add(-2*time.Hour), credentials.AgentURI(domain, "a1"), runnertest.ServerName),
		"another's domain ": agent.CA.Issue(t, credentials.AgentURI("example.org", "a1"), runnertest.ServerName),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serveWith(t, agent, agent.Backend.Apps(), cert, zerolog.Nop()).Client().Cluster().Get(ctxFor(t))
			assert.Equal(t, client.CodeUntrusted, codeOf(t, err), "%v", err)
		})
	}
	assert.Empty(t, agent.Backend.Calls())
}

func TestClient_ReportsUnreachable(t *testing.T) {
	t.Parallel()
	agent := runnertest.Start(t, runnertest.NewBackend())
	for name, answer := range map[string]func(net.Conn){
		"the edge hangs up":  func(net.Conn) {},
		"no TLS there":       func(c net.Conn) { _, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) },
		"nobody listens now": nil,
	} {
		t.Run(name, func(t *testing.T) {
			config := agent.ClientConfig()
			config.EdgeAddresses = []string{edgeThat(t, answer)}
			config.Patience = 300 * time.Millisecond
			c, err := client.New(config)
			require.NoError(t, err)
			defer c.Close()
			_, err = c.Cluster().Get(ctxFor(t))
			assert.Equal(t, client.CodeUnreachable, codeOf(t, err))
			assert.Contains(t, err.Error(), "agent a1 could not be reached for")
			t.Log(err)
		})
	}
}

func TestClient_TriesAllEdges(t *testing.T) {
	t.Parallel()
	agent := runnertest.Start(t, runnertest.NewBackend())
	config := agent.ClientConfig()
	config.EdgeAddresses = []string{edgeThat(t, nil), edgeThat(t, func(net.Conn) {}), agent.Address}
	c, err := client.New(config)
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Cluster().Get(ctxFor(t))
	require.NoError(t, err)
}

func TestClient_EndsWithContext(t *testing.T) {
	b := runnertest.NewBackend()
	entered := make(chan struct{}, 1)
	b.Intercept = func(ctx context.Context, _ runnertest.Call) error {
		entered <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	c := runnertest.Start(t, b).Client()
	ctx, cancel := context.WithCancel(ctxFor(t))
	failed := make(chan error, 1)
	go func() {
		_, err := c.Cluster().Get(ctx)
		failed <- err
	}()
	await.Receive(t, entered, "the call")
	cancel()
	require.ErrorIs(t, await.Receive(t, failed, "the call to end"), context.Canceled)

	ctx, cancel = context.WithTimeout(ctxFor(t), 300*time.Millisecond)
	defer cancel()
	_, err := c.Cluster().Get(ctx)
	assert.Equal(t, client.CodeUnreachable, codeOf(t, err))
}

func TestClient_ChecksConfig(t *testing.T) {
	_, err := client.New(client.Config{})
	require.Error(t, err)
	for _, want := range []string{"ServerName", "EdgeAddresses", "TrustDomain", "Roots", "Certificate"} {
		assert.Contains(t, err.Error(), want)
	}
}

// edgeThat is an address where connections meet this answer and are closed, or,
// with none, where nobody listens.
func edgeThat(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if answer == nil {
		require.NoError(t, ln.Close())
		return ln.Addr().String()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := ln.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			answer(conn)
			_, _ = io.CopyN(io.Discard, conn, 1)
			_ = conn.Close()
		}
	}()
	t.Cleanup(func() {
		_ = ln.Close()
		await.Closed(t, done, "the end of the edge")
	})
	return ln.Addr().String()
}
