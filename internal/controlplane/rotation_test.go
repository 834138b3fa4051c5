package controlplane

import (
	"crypto/tls"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// rotate takes a step by a command beside the control plane, which takes it up.
func (p *plane) rotate(step ca.Step, opts administration.RotateOptions) error {
	p.t.Helper()
	_, _, err := p.admin.CA.Rotate(p.t.Context(), step, opts)
	if err == nil && !opts.DryRun {
		await.Until(p.t, "the control plane takes up "+string(step), func() bool {
			status, err := p.admin.CA.Status(p.t.Context())
			require.NoError(p.t, err)
			return p.ca.Stage() == status.Stage && controlapi.Fingerprint(p.ca.Certificate()) == status.CAs[0].Fingerprint
		})
	}
	return err
}

func (p *plane) requireRotate(force bool, steps ...ca.Step) {
	p.t.Helper()
	for _, step := range steps {
		require.NoError(p.t, p.rotate(step, administration.RotateOptions{Force: force}))
	}
}

// notReady are the names that a step waits for.
func (p *plane) notReady(step ca.Step) []string {
	p.t.Helper()
	var waiting *administration.NotReadyError
	err := p.rotate(step, administration.RotateOptions{DryRun: true})
	if err == nil {
		return nil
	}
	require.True(p.t, errors.As(err, &waiting), "%v", err)
	var names []string
	for _, d := range waiting.NotReady {
		assert.NotEmpty(p.t, d.Reason)
		assert.Contains(p.t, err.Error(), d.Kind+" "+d.Name)
		names = append(names, d.Name)
	}
	return names
}

// beatCAs sends a heartbeat as an agent that follows rotations, and takes what the
// answer says of the CAs.
func (c *cluster) beatCAs() controlapi.HeartbeatAnswer {
	c.t.Helper()
	beat := c.heartbeat()
	beat.CABundleHash = controlapi.BundleHash(c.id.CABundle)
	answer, err := c.client.Heartbeat(c.t.Context(), beat)
	require.NoError(c.t, err)
	if answer.CAs != nil {
		id := c.id
		id.CABundle, id.FormerCAs = answer.CAs.Bundle, answer.CAs.Former
		c.adopt(id, c.key)
	}
	return answer
}

func (c *cluster) renew() {
	c.t.Helper()
	key := selfsigned.Key(c.t)
	id, err := c.client.Renew(c.t.Context(), csr(c.t, key))
	require.NoError(c.t, err)
	c.adopt(id, key)
}

// runner makes a Runner whose certificates last an hour, in a file.
func (p *plane) runner(name string) string {
	p.t.Helper()
	return p.runnerFor(name, time.Hour)
}

// login opens a file of credentials as a Runner does.
func (p *plane) login(file string) *login.Login {
	p.t.Helper()
	held, err := credentials.Load(file)
	require.NoError(p.t, err)
	l, err := login.New(login.Config{
		Credentials: held, Save: func(c credentials.Credentials) error { return c.Write(file) },
		Note: func(err error) { p.t.Error(err) }, Now: p.clock.now,
	})
	require.NoError(p.t, err)
	p.t.Cleanup(l.Close)
	return l
}

func (p *plane) snapshotBy(l *login.Login) error {
	p.t.Helper()
	_, err := (&announce.SnapshotClient{BaseURL: p.Advertised().API, HTTPClient: l.HTTPClient()}).Agents(p.t.Context())
	return err
}

// TestCARotate_OldTokens registers with a token from before two rotations.
func TestCARotate_OldTokens(t *testing.T) {
	p := start(t)
	token := p.token(func(o *administration.TokenOptions) { o.TTL = 0 })
	c := p.cluster("shop")
	p.requireRotate(false, ca.Start)
	between := p.token()
	assert.Equal(t, token.Fingerprint, between.Fingerprint)
	p.requireRotate(false, ca.Sign, ca.Finish, ca.Start, ca.Sign, ca.Finish)
	require.NoError(t, c.register(token))
	require.NoError(t, c.beat())
	late := p.cluster("late")
	require.NoError(t, late.register(p.token()))
	assert.NotEqual(t, token.Fingerprint, p.token().Fingerprint)
}

func TestFormerCA_AgentRecovers(t *testing.T) {
	p := start(t)
	awake, asleep := p.registered("awake"), p.registered("asleep")
	p.requireRotate(true, ca.Start, ca.Sign, ca.Finish)

	t.Run("with a certificate that is valid still", func(t *testing.T) {
		answer := awake.beatCAs()
		assert.NotNil(t, answer.CAs)
		assert.Equal(t, 1, answer.RenewWithin, "at once: it has no tunnel")
		awake.renew()
		assert.Zero(t, awake.beatCAs().RenewWithin)
	})
	t.Run("with one that is not", func(t *testing.T) {
		p.clock.forward(1000 * time.Hour)
		requireProblem(t, asleep.beat(), controlapi.CodeCertificateExpired)
		asleep.recover()
		require.NoError(t, asleep.beat())
	})
	t.Run("but not with a key that is not its own", func(t *testing.T) {
		// Whoever has stolen the old CA's key can make certificates, but no keys.
		stolen := awake.id
		_, err := asleep.client.Recover(t.Context(), stolen.Certificate, selfsigned.Key(t), csr(t, selfsigned.Key(t)))
		requireProblem(t, err, controlapi.CodeCertificateUnknown)
	})
}

func TestFormerCA_RunnerRecovers(t *testing.T) {
	p := start(t)
	file := p.runner("builder")
	stolen := filepath.Join(t.TempDir(), "stolen.pem")
	p.requireRotate(true, ca.Start)
	text, err := os.ReadFile(filepath.Join(p.cfg.DataDir, datadir.FileCA))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(stolen, text, 0o600))
	p.requireRotate(true, ca.Sign, ca.Finish)

	// It trusts the old CA alone, and its certificate is of the old CA.
	require.NoError(t, p.snapshotBy(p.login(file)))
	l := p.login(file) // which was written again
	cert, err := l.Certificate()
	require.NoError(t, err)
	assert.True(t, p.ca.Current(cert.Leaf))
	require.NoError(t, p.snapshotBy(l))
	require.NoError(t, l.Check(t.Context()), "asking again is harmless")

	t.Run("not with another key", func(t *testing.T) {
		old, err := ca.Open(stolen, ca.Domains{}, ca.LogFunc(func(ca.Record) error { return nil }), p.clock.now)
		require.NoError(t, err)
		key := selfsigned.Key(t)
		forged := *cert.Leaf
		forged.PublicKey = key.Public()
		issued, err := old.Renew(&forged, time.Hour, "test")
		require.NoError(t, err)
		leaf, err := ca.ParseCertificate(issued.Certificate)
		require.NoError(t, err)
		require.Equal(t, cert.Leaf.SerialNumber, leaf.SerialNumber)
		for path, method := range map[string]string{announce.SnapshotPath: http.MethodGet, login.Path: http.MethodPost} {
			err := refusal(p.call(p.client(tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}), method, path, ""))
			requireProblem(t, err, controlapi.CodeCertificateUnknown, "key on record")
		}
	})
	t.Run("not when it was revoked", func(t *testing.T) {
		require.NoError(t, p.admin.Runners.Revoke(t.Context(), "builder"))
		require.Error(t, p.snapshotBy(l))
		requireProblem(t, l.Check(t.Context()), controlapi.CodeCertificateUnknown, "revoked")
	})
}

func TestCARotate_Abort(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	first := p.ca.Certificate()
	c.beatCAs()
	p.requireRotate(false, ca.Start)
	c.beatCAs()
	c.beatCAs()
	p.requireRotate(false, ca.Sign)
	c.renew()
	c.beatCAs()
	late := p.registered("late")
	file := p.runner("builder")

	p.requireRotate(false, ca.Abort)
	assert.Equal(t, ca.Introduced, p.ca.Stage())
	assert.Equal(t, first, p.ca.Certificate())
	assert.Positive(t, c.beatCAs().RenewWithin)
	late.beatCAs()
	assert.Equal(t, []string{"late", "shop", "builder"}, p.notReady(ca.Abort))
	c.renew()
	c.beatCAs()
	assert.Equal(t, []string{"late", "builder"}, p.notReady(ca.Abort))
	p.requireRotate(true, ca.Abort)
	assert.Equal(t, ca.Settled, p.ca.Stage())
	assert.Positive(t, late.beatCAs().RenewWithin)
	late.renew()
	for _, agent := range []*cluster{c, late} {
		agent.beatCAs()
		assert.Nil(t, agent.beatCAs().CAs)
		assert.Equal(t, string(p.ca.Bundle()), agent.id.CABundle)
	}
	require.NoError(t, p.snapshotBy(p.login(file)))
}

func TestCARotate_OneStepAtATime(t *testing.T) {
	p := start(t)
	lock, err := p.cfg.data().LockCA()
	require.NoError(t, err)
	require.ErrorContains(t, p.rotate(ca.Start, administration.RotateOptions{}), "another command")
	require.NoError(t, lock.Release())
	p.requireRotate(false, ca.Start)
	next := p.ca.Other()
	p.requireRotate(false, ca.Start)
	assert.Equal(t, next, p.ca.Other(), "again is harmless")
}

func TestCA_WarnsBeforeEnd(t *testing.T) {
	log := &logbook.Book{}
	p := start(t, func(c *Config) { c.Log = zerolog.New(log) })
	assert.Zero(t, log.Count("the CA expires soon"))
	p.clock.forward(time.Until(p.ca.Certificate().NotAfter) - 100*24*time.Hour)
	await.Until(t, "the log warns", func() bool { return log.Count("the CA expires soon", "ca rotate start") > 0 })
}

// TestCA_ReplacedAfterEnd: the control plane does not start, says what to do, and starts when that
// was done. Its agent comes back.
func TestCA_ReplacedAfterEnd(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	p.stop()
	p.clock.forward(11 * 365 * 24 * time.Hour)
	_, err := New(t.Context(), p.cfg)
	require.ErrorContains(t, err, "ca rotate start")
	admin, err := administration.Open(t.Context(), p.cfg.data(), p.clock.now)
	require.NoError(t, err)
	for _, step := range []ca.Step{ca.Start, ca.Sign, ca.Finish} {
		_, changed, err := admin.CA.Rotate(t.Context(), step, administration.RotateOptions{Force: true})
		require.NoError(t, err)
		assert.True(t, changed)
	}
	require.NoError(t, admin.Close())

	again := start(t, func(cfg *Config) {
		*cfg = p.cfg
		again := p.Addrs()
		cfg.APIListen, cfg.TunnelListen, cfg.EdgeListen = again.API.String(), again.Tunnel.String(), again.Edge.String()
	})
	requireProblem(t, c.beat(), controlapi.CodeCertificateExpired)
	c.recover()
	require.NoError(t, c.beat())
	assert.Equal(t, string(again.ca.Bundle()), c.id.CABundle)
}

// TestIntermediateCA_RenewedWhileServing: agents follow.
func TestIntermediateCA_RenewedWhileServing(t *testing.T) {
	p := start(t)
	before := p.ca.SignerID(ca.RoleAgent)
	p.clock.forward(p.ca.IntermediatesEnd().Sub(p.clock.now()) - ca.RenewBefore - time.Hour)
	c := p.registered("shop")
	c.beatCAs()
	p.clock.forward(2 * time.Hour)
	await.Until(t, "the intermediate CAs are renewed", func() bool { return p.ca.IntermediatesEnd().Sub(p.clock.now()) > ca.RenewBefore })
	assert.Equal(t, before, p.ca.SignerID(ca.RoleAgent), "other control planes have a moment to learn of it")
	assert.Zero(t, c.beatCAs().RenewWithin)
	p.clock.forward(2 * time.Minute)
	assert.NotEqual(t, before, p.ca.SignerID(ca.RoleAgent))
	assert.Equal(t, 600, c.beatCAs().RenewWithin)
	c.renew()
	assert.Zero(t, c.beatCAs().RenewWithin)
	tun, down := c.connect()
	defer down()
	c.answer(tun)
	await.Until(t, "connected", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	down()
}
