package agent_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/contract/checked"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// visitor is a Runner that goes through the edge and the tunnel.
func visitor(t *testing.T, p *planetest.Plane, name, agents, agentID string) *client.Client {
	t.Helper()
	grant, err := credentials.ParseGrant(agents)
	require.NoError(t, err)
	creds, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: name, TTL: time.Hour, Agents: grant})
	require.NoError(t, err)
	return holding(t, creds, agentID)
}

// issueRunner makes credentials, in place of those that the Runner has.
func issueRunner(t *testing.T, p *planetest.Plane, name string) credentials.Credentials {
	t.Helper()
	creds, err := p.Runners.Issue(t.Context(), administration.RunnerOptions{Name: name, TTL: time.Hour, Replace: true})
	require.NoError(t, err)
	return creds
}

// holding is a Runner with these credentials.
func holding(t *testing.T, creds credentials.Credentials, agentID string, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cert, err := creds.TLSCertificate()
	require.NoError(t, err)
	roots, err := creds.Roots()
	require.NoError(t, err)
	config := client.Config{
		AgentID: agentID, ServerName: agentID + "." + creds.AgentsDomain, EdgeAddresses: []string{creds.Edge},
		TrustDomain: creds.TrustDomain, Roots: roots, Certificate: func() (*tls.Certificate, error) { return &cert, nil }, Around: checked.Around(t),
	}
	for _, f := range change {
		f(&config)
	}
	c, err := client.New(config)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// stream follows the log of an App that has none, for as long as it is let.
func stream(t *testing.T, c *client.Client, app string) (ended chan error) {
	t.Helper()
	key := runnerapi.Key{Namespace: "held", Name: app}
	_, err := c.Cluster().Get(t.Context())
	require.NoError(t, err)
	ended = make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() {
		ended <- c.Apps().Logs(ctx, key, runnerapi.LogOptions{Follow: true}, func(runnerapi.LogLine) error { return nil })
	}()
	return ended
}

func awaitEnd(t *testing.T, what string, ended chan error) {
	t.Helper()
	var e *runnerapi.Error
	require.ErrorAs(t, await.Receive(t, ended, "the end of the stream: "+what), &e)
	assert.Equal(t, client.CodeRefused, e.Code, "when it comes again it is told why")
}

// TestGrant_LimitsRunner has a real agent behind a real tunnel. Its heartbeats are far apart: it
// learns of changes in time only by a refresh.
func TestGrant_LimitsRunner(t *testing.T) {
	p := planetest.Start(t, func(c *controlplane.Config) { c.HeartbeatInterval = 10 * time.Minute })
	invitation := p.Token(t, administration.TokenOptions{TTL: time.Hour, Labels: map[string]string{"env": "prod"}})
	run(t, p, t.TempDir(), invitation)
	id := p.AwaitOnline(t, time.Time{})

	owner := visitor(t, p, "owner", "", id)
	prod := visitor(t, p, "prod", "env=prod", id)
	_, err := owner.Namespaces().Set(t.Context(), "held", runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	quiet := runnerapi.AppSpec{Image: "registry.example.com/quiet:1"}
	_, err = owner.Apps().Deploy(t.Context(), runnerapi.Key{Namespace: "held", Name: "quiet"}, quiet, runnerapi.WriteOptions{})
	require.NoError(t, err)

	_, err = visitor(t, p, "test", "env=test", id).Cluster().Get(t.Context())
	require.ErrorContains(t, err, fmt.Sprintf("agent %s refuses Runner test: not granted (its certificate is for agents with env=test)", id))

	kept, cut := stream(t, owner, "quiet"), stream(t, prod, "quiet")
	_, err = p.Agents.Label(t.Context(), id, map[string]string{"env": "test"}, nil)
	require.NoError(t, err)
	awaitEnd(t, "the agent has other labels", cut)
	_, err = visitor(t, p, "later", "env=test", id).Cluster().Get(t.Context())
	require.NoError(t, err)

	late := visitor(t, p, "late", "", id)
	cut = stream(t, late, "quiet")
	require.NoError(t, p.Runners.Revoke(t.Context(), "late"))
	awaitEnd(t, "the Runner is revoked", cut)
	_, err = late.Cluster().Get(t.Context())
	require.ErrorContains(t, err, "refuses Runner late")
	select {
	case err := <-kept:
		t.Fatalf("another Runner's stream ended: %v", err)
	default:
	}

	await.Until(t, "the refusals are in the audit log", func() bool {
		list, err := owner.Audit().Find(t.Context(), runnerapi.AuditFilter{Command: runnerapi.AuditConnect})
		require.NoError(t, err)
		var all []string
		for _, r := range list.Items {
			all = append(all, fmt.Sprintf("%s %s cut=%t", r.Runner, r.Code, strings.HasPrefix(r.Message, "an open connection was cut")))
		}
		return slices.Contains(all, "test runner_not_granted cut=false") && slices.Contains(all, "prod runner_not_granted cut=true") &&
			slices.Contains(all, "late runner_revoked cut=true") && slices.Contains(all, "late runner_revoked cut=false")
	})
}
