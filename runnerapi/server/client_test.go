package server_test

import (
	"context"
	"crypto/tls"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
)

// ill is a replica that is connected and of no use: its API server is away.
type ill struct {
	backend.Apps
	asked atomic.Int64
}

func (b *ill) Get(context.Context, runnerapi.Key) (runnerapi.App, error) {
	b.asked.Add(1)
	return runnerapi.App{}, problem.Errorf(problem.Unavailable, "wait", "the cluster does not answer")
}

// Of two replicas, one returns that its cluster is unavailable: the next try goes to the other.
func TestClient_SkipsUnhealthyReplica(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	sick := &ill{Apps: agent.Backend.Apps()}
	edge := faultproxy.New(t, serveTLS(t, agent, sick).address, agent.Address).Addr() // in turn
	_, err := agent.Client().Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "example.com/web:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	client := agent.ClientWith(func(c *client.Config) { c.EdgeAddresses, c.Patience = []string{edge}, time.Minute })
	for range 3 {
		_, err := client.Apps().Get(t.Context(), web)
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, sick.asked.Load(), "the connection to the other one is kept")
}

func TestRunnerCertificate_RefusesOthers(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	other := runnertest.NewCA(t)
	domain := runnertest.TrustDomain
	two := credentials.RunnerURI(domain, "x")
	two.RawQuery = "a=b"
	type presented struct {
		cert tls.Certificate
		code runnerapi.Code
	}
	cases := map[string]presented{
		"an agent's certificate":     {agent.CA.Issue(t, credentials.AgentURI(domain, "a2")), client.CodeRefused},
		"another trust domain":       {agent.CA.Issue(t, credentials.RunnerURI("example.org", "tester")), client.CodeRefused},
		"another CA":                 {other.Issue(t, credentials.RunnerURI(domain, "tester")), client.CodeRefused},
		"a path below":               {agent.CA.Issue(t, credentials.RunnerURI(domain, "a/b")), client.CodeRefused},
		"no name":                    {agent.CA.Issue(t, credentials.RunnerURI(domain, "")), client.CodeRefused},
		"no SPIFFE ID":               {agent.CA.Issue(t, &url.URL{Scheme: "https", Host: domain, Path: "/runner/tester"}), client.CodeRefused},
		"a query":                    {agent.CA.Issue(t, two), client.CodeRefused},
		"expired":                    {agent.CA.IssueAt(t, time.Now().Add(-2*time.Hour), credentials.RunnerURI(domain, "tester")), client.CodeUntrusted},
		"a clock that is two h slow": {agent.CA.IssueAt(t, time.Now().Add(2*time.Hour), credentials.RunnerURI(domain, "tester")), client.CodeUntrusted},
	}
	for _, signer := range othersThan(trustanchor.RoleRunner) { // a thief has the key of that CA
		cases["by the CA for "+signer] = presented{agent.CA.IssueBy(t, signer, credentials.RunnerURI(domain, "tester")), client.CodeRefused}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			log := zerolog.New(&said)
			c := agent.ClientWith(func(c *client.Config) {
				c.Certificate, c.Log = func() (*tls.Certificate, error) { return &tc.cert, nil }, &log
			})
			_, err := c.Cluster().Get(ctxFor(t))
			assert.Equal(t, tc.code, codeOf(t, err), "%v", err)
			assert.Empty(t, said.String(), "it is final: the client does not try again")
		})
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
	certs := map[string]tls.Certificate{
		"another CA":        runnertest.NewCA(t).Issue(t, credentials.AgentURI(domain, "a1"), runnertest.ServerName),
		"another agent":     agent.CA.Issue(t, credentials.AgentURI(domain, "a2"), runnertest.ServerName),
		"another name":      agent.CA.Issue(t, credentials.AgentURI(domain, "a1"), "a2.agents.example.com"),
		"a Runner":          agent.CA.Issue(t, credentials.RunnerURI(domain, "a1"), runnertest.ServerName),
		"out of its time":   agent.CA.IssueAt(t, time.Now().Add(-2*time.Hour), credentials.AgentURI(domain, "a1"), runnertest.ServerName),
		"another's domain ": agent.CA.Issue(t, credentials.AgentURI("example.org", "a1"), runnertest.ServerName),
	}
	for _, signer := range othersThan(trustanchor.RoleAgent) {
		certs["by the CA for "+signer] = agent.CA.IssueBy(t, signer, credentials.AgentURI(domain, "a1"), runnertest.ServerName)
	}
	for name, cert := range certs {
		t.Run(name, func(t *testing.T) {
			_, err := serveWith(t, agent, agent.Backend.Apps(), cert, zerolog.Nop()).Client().Cluster().Get(ctxFor(t))
			assert.Equal(t, client.CodeUntrusted, codeOf(t, err), "%v", err)
		})
	}
	assert.Empty(t, agent.Backend.Calls())
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
	for what, call := range map[string]func(context.Context) error{
		"a call": func(ctx context.Context) error { _, err := c.Cluster().Get(ctx); return err },
		"a drain, which repeats its call": func(ctx context.Context) error {
			_, err := c.Nodes().Drain(ctx, runnertest.NodeName, runnerapi.DrainOptions{}, runnerapi.WriteOptions{}, func(runnerapi.Drain) {})
			return err
		},
	} {
		ctx, cancel := context.WithCancel(ctxFor(t))
		failed := make(chan error, 1)
		go func() { failed <- call(ctx) }()
		await.Receive(t, entered, what)
		cancel()
		require.ErrorIs(t, await.Receive(t, failed, "the end of "+what), context.Canceled)
	}

	ctx, cancel := context.WithTimeout(ctxFor(t), 300*time.Millisecond)
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
