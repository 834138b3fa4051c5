package agent_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/contract/checked"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const year = 365 * 24 * time.Hour

// rotate takes a step once everybody is ready for it.
func rotate(t *testing.T, p *planetest.Plane, step ca.Step) {
	t.Helper()
	var last error
	await.Until(t, fmt.Sprintf("all are ready for step %s", step), func() bool {
		_, _, err := p.CA.Rotate(t.Context(), step, administration.RotateOptions{})
		if err != nil && (last == nil || last.Error() != err.Error()) {
			t.Log(err)
		}
		last = err
		return err == nil
	})
}

// rotateWithoutAgent takes all steps while the agent is offline. The first time the
// last one takes away the CA of its certificate.
func rotateWithoutAgent(t *testing.T, p *planetest.Plane, first bool) {
	t.Helper()
	for _, step := range []ca.Step{ca.Start, ca.Sign, ca.Finish} {
		if step == ca.Sign || step == ca.Finish && first {
			_, _, err := p.CA.Rotate(t.Context(), step, administration.RotateOptions{})
			require.ErrorContains(t, err, "agent "+name)
		}
		_, changed, err := p.CA.Rotate(t.Context(), step, administration.RotateOptions{Force: true})
		require.NoError(t, err)
		require.True(t, changed)
	}
}

// runner is one that gives commands without a pause: on a connection that it keeps,
// and each time on a new one as well.
type runner struct {
	t     *testing.T
	p     *planetest.Plane
	file  string
	login *login.Login
	kept  *client.Client

	commands atomic.Int64
	stop     func()
}

func newRunner(t *testing.T, p *planetest.Plane, agentID string) *runner {
	t.Helper()
	credentials, err := p.Runners.Create(t.Context(), "busy", year, false)
	require.NoError(t, err)
	r := &runner{t: t, p: p, file: filepath.Join(t.TempDir(), "busy.json")}
	require.NoError(t, credentials.Write(r.file))
	r.login, err = login.Open(r.file, func(err error) { t.Log(err) })
	require.NoError(t, err)
	t.Cleanup(r.login.Close)
	r.kept = r.client(agentID)
	t.Cleanup(r.kept.Close)
	return r
}

func (r *runner) client(agentID string) *client.Client {
	r.t.Helper()
	credentials := r.login.Credentials()
	c, err := client.New(client.Config{
		AgentID: agentID, ServerName: agentID + "." + credentials.AgentsDomain, EdgeAddresses: []string{credentials.Edge},
		TrustDomain: credentials.TrustDomain, Roots: r.login.Roots(), Certificate: r.login.Certificate,
		Around: checked.Around(r.t),
	})
	require.NoError(r.t, err)
	return c
}

// command asks the control plane for the agent, as pipeops-runner does, and the
// agent for its cluster.
func (r *runner) command(ctx context.Context) error {
	agents, err := r.agents(ctx)
	if err != nil {
		return err
	}
	fresh := r.client(agents[0].ID)
	defer fresh.Close()
	for _, client := range []*client.Client{r.kept, fresh} {
		if _, err := client.Cluster().Get(ctx); err != nil {
			return err
		}
	}
	r.commands.Add(1)
	return nil
}

// agents has the patience with a control plane that restarts that pipeops-runner has.
func (r *runner) agents(ctx context.Context) (agents []announce.Agent, err error) {
	for end := time.Now().Add(client.DefaultPatience); time.Now().Before(end) && ctx.Err() == nil; {
		client := announce.SnapshotClient{BaseURL: r.login.Credentials().ControlPlane, HTTPClient: r.login.HTTPClient()}
		if agents, err = client.Agents(ctx); err == nil {
			return agents, nil
		}
	}
	return nil, err
}

// begin gives commands until the test ends or stop is called.
func (r *runner) begin() {
	r.stop = await.Background(r.t, "the Runner's commands", func(ctx context.Context) error {
		for ctx.Err() == nil {
			if err := r.command(ctx); err != nil && ctx.Err() == nil {
				r.t.Errorf("after %d commands: %v", r.commands.Load(), err)
			}
		}
		return nil
	})
}

// some waits until more commands were carried out.
func (r *runner) some() {
	r.t.Helper()
	want := r.commands.Load() + 3
	await.Until(r.t, "commands are carried out", func() bool { return r.commands.Load() >= want })
}

// storedIdentity is the agent's, from its directory.
func storedIdentity(t *testing.T, dir string) *identity.Identity {
	t.Helper()
	parts, _, err := identity.File{Dir: dir}.Load(t.Context())
	require.NoError(t, err)
	id, err := identity.Decode(parts)
	require.NoError(t, err)
	return id
}

// signer is the root CA that signs.
func signer(t *testing.T, p *planetest.Plane) *x509.Certificate {
	t.Helper()
	return authority(t, p).Certificate()
}

// rootOf is the KeyID of the root CA above a certificate.
func rootOf(t *testing.T, p *planetest.Plane, cert *x509.Certificate) string {
	t.Helper()
	return authority(t, p).RootID(cert)
}

func authority(t *testing.T, p *planetest.Plane) *ca.CA {
	t.Helper()
	authority, err := ca.Open(filepath.Join(p.Config.DataDir, "ca.pem"), ca.Domains{Trust: p.Config.TrustDomain, Agents: p.Config.AgentsDomain}, ca.LogFunc(func(ca.Record) error { return nil }), p.Clock.Now)
	require.NoError(t, err)
	return authority
}

// TestCARotation_CommandsSucceed restarts the control plane between each two steps. No command
// fails.
func TestCARotation_CommandsSucceed(t *testing.T) {
	suite.Release(t, "a rotation of the CA while commands run")
	p, dir := planetest.Start(t), t.TempDir()
	once := p.Token(t, administration.TokenOptions{Uses: 1})
	first := run(t, p, dir, once)
	agentID := p.AwaitOnline(t, time.Time{})
	old := signer(t, p)
	r := newRunner(t, p, agentID)
	r.begin()
	r.some()
	for _, step := range []ca.Step{ca.Start, ca.Sign, ca.Finish} {
		rotate(t, p, step)
		r.some()
		p.Stop()
		p.Restart(t)
		r.some()
	}
	await.Until(t, "the agent trusts the new CA alone", func() bool { return len(trustanchor.Parse([]byte(storedIdentity(t, dir).CABundle))) == 1 })
	r.some()
	r.stop()
	t.Logf("%d commands, none failed", r.commands.Load())

	assert.NotEqual(t, old, signer(t, p))
	assert.Equal(t, ca.KeyID(signer(t, p)), rootOf(t, p, storedIdentity(t, dir).Certificate.Leaf))
	written, err := login.Open(r.file, nil)
	require.NoError(t, err)
	defer written.Close()
	cert, err := written.Certificate()
	require.NoError(t, err)
	assert.Equal(t, ca.KeyID(signer(t, p)), rootOf(t, p, cert.Leaf), "the Runner's file follows")

	// The token names the old CA and is used up: it is still the same agent's.
	first.stop()
	again := p.Clock.Now()
	run(t, p, dir, once)
	assert.Equal(t, agentID, p.AwaitOnline(t, again))
}

// TestCARotation_OfflineAgent has the agent away for a while, and for longer than two CAs last.
func TestCARotation_OfflineAgent(t *testing.T) {
	for name, away := range map[string][]time.Duration{"for minutes": {0}, "for a month": {30 * 24 * time.Hour}, "for 18 years": {9 * year, 9 * year}} {
		t.Run(name, func(t *testing.T) {
			p, dir := planetest.Start(t), t.TempDir()
			invitation := p.Token(t, administration.TokenOptions{Uses: 1})
			first := run(t, p, dir, invitation)
			id := p.AwaitOnline(t, time.Time{})
			first.stop()
			old := storedIdentity(t, dir)
			for i, d := range away {
				p.Clock.Advance(d)
				rotateWithoutAgent(t, p, i == 0)
			}
			again := p.Clock.Now()
			run(t, p, dir, invitation)
			assert.Equal(t, id, p.AwaitOnline(t, again))
			await.Until(t, "it has a certificate of the new CA", func() bool {
				now := storedIdentity(t, dir)
				return rootOf(t, p, now.Certificate.Leaf) == ca.KeyID(signer(t, p)) && !strings.Contains(now.CABundle, strings.TrimSpace(old.CABundle))
			})
			status, err := p.CA.Status(t.Context())
			require.NoError(t, err)
			assert.Empty(t, status.NotReady)
		})
	}
}

// TestRenew_CommandsSucceed has the certificate renewed after two thirds of its time.
func TestRenew_CommandsSucceed(t *testing.T) {
	const age = 45 * time.Minute // Runners have the real clock
	p, dir := planetest.StartBehind(t, age, func(c *controlplane.Config) { c.CertificateTTL = time.Hour }), t.TempDir()
	opts := optionsOf(t, p, dir, token(t, p))
	opts.RenewalCheck = 50 * time.Millisecond
	launch(t, opts)
	r := newRunner(t, p, p.AwaitOnline(t, time.Time{}))
	r.begin()
	first := storedIdentity(t, dir)
	p.Clock.Advance(age)
	await.Until(t, "the certificate is renewed", func() bool { return !storedIdentity(t, dir).Same(first) })
	r.some()
}
