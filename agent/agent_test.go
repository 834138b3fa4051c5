package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

func TestMain(m *testing.M) {
	render.Child() // of releases
	os.Exit(kubetest.Main(m, kubetest.OwnClusters))
}

const (
	name     = "life"
	patience = 3 * time.Minute
)

// eventually waits until a check succeeds.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, what, check))
}

// token is one that an agent registers with, as often as the test likes.
func token(t *testing.T, p *planetest.Plane) string {
	t.Helper()
	return p.Token(t, administration.TokenOptions{TTL: time.Hour})
}

// running is an agent in this process.
type running struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error
}

// run starts an agent whose identity is in dir.
func run(t *testing.T, p *planetest.Plane, dir, token string, more ...func(*config.Config)) *running {
	t.Helper()
	return launch(t, optionsOf(t, p, dir, token, more...))
}

func optionsOf(t *testing.T, p *planetest.Plane, dir, token string, more ...func(*config.Config)) agent.Options {
	t.Helper()
	opts := agent.Options{
		Config: config.Config{
			ControlPlaneURL: p.URL(), Token: token, ClusterName: name, StateDir: dir,
			Namespace: kubetest.AgentNamespace, HealthAddress: "127.0.0.1:0",
		},
		Version: "test", Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel), Now: p.Clock.Now,
	}
	for _, change := range more {
		change(&opts.Config)
	}
	return opts
}

// selfUpdating has an agent take offers, if there were any.
func selfUpdating(c *config.Config) {
	c.SelfUpdate, c.UpdateKeys, c.UpdateDeadline = true, []string{releasetest.PublicKey}, time.Minute
}

// launch runs an agent in this process, in the tests' cluster unless it is said
// where.
func launch(t *testing.T, opts agent.Options) *running {
	t.Helper()
	if opts.Kubernetes == nil {
		opts.Kubernetes = kubetest.ControlPlane(t).Agent
	}
	a, err := agent.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

// stop ends the agent and waits for it. It may be called again.
func (r *running) stop() {
	r.cancel()
	if r.done != nil {
		await.Receive(r.t, r.done, "the end of the agent")
		r.done = nil
	}
}

// end waits until the agent ends by itself and answers why.
func (r *running) end(t *testing.T) error {
	t.Helper()
	err := await.Receive(t, r.done, "the end of the agent")
	r.done = nil
	return err
}

// TestRestart_KeepsAgentID, also after the certificate has expired.
func TestRestart_KeepsAgentID(t *testing.T) {
	for name, away := range map[string]time.Duration{"at once": 0, "after a month": 30 * 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			p, dir := planetest.Start(t), t.TempDir()
			first := run(t, p, dir, token(t, p))
			id := p.AwaitOnline(t, time.Time{})
			first.stop()
			p.Clock.Advance(away)
			again := p.Clock.Now()
			run(t, p, dir, "")
			assert.Equal(t, id, p.AwaitOnline(t, again))
		})
	}
}

// TestRegister_MakesNamespaces: at the first registration alone, so that deleting one is final.
func TestRegister_MakesNamespaces(t *testing.T) {
	p, dir := planetest.Start(t), t.TempDir()
	admin := kubetest.ControlPlane(t).Client
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	require.NoError(t, admin.Create(t.Context(), namespace("first-theirs")))
	t.Cleanup(func() {
		for _, name := range []string{"first-theirs", "first-one"} {
			require.NoError(t, admin.Delete(context.Background(), namespace(name)))
		}
	})
	first := func(names ...string) func(*config.Config) {
		return func(c *config.Config) { c.FirstNamespaces = names }
	}
	find := func(name string) (labels map[string]string, err error) {
		found := &corev1.Namespace{}
		err = admin.Get(t.Context(), client.ObjectKey{Name: name}, found)
		return found.Labels, err
	}
	one := run(t, p, dir, token(t, p), first("first-theirs", "first-one"))
	p.AwaitOnline(t, time.Time{})
	labels, err := find("first-one")
	require.NoError(t, err)
	assert.Equal(t, "pipeops", labels[objectmeta.ManagedBy])
	labels, err = find("first-theirs")
	require.NoError(t, err)
	assert.NotContains(t, labels, objectmeta.ManagedBy)
	one.stop()
	again := p.Clock.Now()
	run(t, p, dir, "", first("first-two"))
	p.AwaitOnline(t, again)
	_, err = find("first-two")
	assert.True(t, apierrors.IsNotFound(err))
}

// selfUpdates are agents without self-update and with it.
var selfUpdates = map[string]func(*config.Config){"without self-update": func(*config.Config) {}, "with self-update": selfUpdating}

// backUp copies the control plane's data, and returns a function that restores it.
func backUp(t *testing.T, p *planetest.Plane) (restore func()) {
	t.Helper()
	backup := t.TempDir() + "/data"
	p.Stop()
	require.NoError(t, exec.Command("cp", "-a", p.Config.DataDir, backup).Run())
	p.Restart(t)
	return func() {
		p.Stop()
		require.NoError(t, os.RemoveAll(p.Config.DataDir))
		require.NoError(t, exec.Command("cp", "-a", backup, p.Config.DataDir).Run())
		p.Restart(t)
	}
}

// TestRegister_AfterForgotten restores a backup of the control plane from before the registration.
func TestRegister_AfterForgotten(t *testing.T) {
	for name, updates := range selfUpdates {
		t.Run(name, func(t *testing.T) {
			p := planetest.Start(t)
			invitation := token(t, p)
			restore := backUp(t, p)
			run(t, p, t.TempDir(), invitation, updates)
			p.AwaitOnline(t, time.Time{})
			restored := p.Clock.Now()
			restore()
			p.AwaitOnline(t, restored)
		})
	}
}

// TestRestore_KeepsAgent restores a backup from before an agent renewed its certificate twice.
func TestRestore_KeepsAgent(t *testing.T) {
	for name, c := range map[string]struct{ since, later time.Duration }{
		"1 hour": {since: time.Hour}, "1 day": {since: 24 * time.Hour}, "60 days": {since: 60 * 24 * time.Hour},
		"with a certificate that has ended": {since: time.Hour, later: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			p, dir := planetest.Start(t, func(c *controlplane.Config) { c.CertificateTTL = 20 * time.Minute }), t.TempDir()
			first := run(t, p, dir, token(t, p))
			id := p.AwaitOnline(t, time.Time{})
			first.stop()
			restore := backUp(t, p)
			for range 2 {
				p.Clock.Advance(c.since / 2)
				renewed := p.Clock.Now()
				r := run(t, p, dir, "")
				p.AwaitOnline(t, renewed)
				r.stop()
			}
			restore()
			p.Clock.Advance(c.later)
			restored := p.Clock.Now()
			run(t, p, dir, "")
			assert.Equal(t, id, p.AwaitOnline(t, restored))
		})
	}
}

// TestRestore_ResendsApps restores a backup from before an App was deployed, and another ended. The
// agent runs on.
func TestRestore_ResendsApps(t *testing.T) {
	p := planetest.Start(t)
	run(t, p, t.TempDir(), token(t, p))
	id := p.AwaitOnline(t, time.Time{})
	owner := holding(t, issueRunner(t, p, "ops"), id)
	_, err := owner.Namespaces().Set(t.Context(), "resent", runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	deploy := func(app string) {
		_, err := owner.Apps().Deploy(t.Context(), runnerapi.Key{Namespace: "resent", Name: app}, runnerapi.AppSpec{Image: "registry.example.com/quiet:1"}, runnerapi.WriteOptions{})
		require.NoError(t, err)
	}
	awaitLast := func(app string, kind announce.Type) {
		eventually(t, app+" is "+string(kind), func(ctx context.Context) error {
			page, err := p.Agents.Timeline(ctx, id, announce.TimelineQuery{Namespace: "resent", App: app, Limit: 1})
			if err == nil && (len(page.Events) == 0 || page.Events[0].Type != kind) {
				err = fmt.Errorf("the timeline has %v", page.Events)
			}
			return err
		})
	}
	deploy("ended")
	awaitLast("ended", announce.AppProgressing)
	restore := backUp(t, p)
	deploy("kept")
	err = owner.Apps().Delete(t.Context(), runnerapi.Key{Namespace: "resent", Name: "ended"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	awaitLast("kept", announce.AppProgressing)
	awaitLast("ended", announce.AppRemoved)
	restore()
	awaitLast("kept", announce.AppProgressing)
	awaitLast("ended", announce.AppRemoved)
}

// TestToken_ReplacesIdentity gives a new token to an agent whose certificate is of an earlier
// installation in its cluster.
func TestToken_ReplacesIdentity(t *testing.T) {
	p, dir := planetest.Start(t), t.TempDir()
	earlier := run(t, p, dir, token(t, p))
	p.AwaitOnline(t, time.Time{})
	earlier.stop()
	newer := run(t, p, t.TempDir(), token(t, p))
	id := p.AwaitOnline(t, p.Clock.Now())
	newer.stop()
	again := p.Clock.Now()
	run(t, p, dir, token(t, p))
	assert.Equal(t, id, p.AwaitOnline(t, again))
}

func TestRevoke_StopsAgent(t *testing.T) {
	for name, updates := range selfUpdates {
		t.Run(name, func(t *testing.T) {
			p := planetest.Start(t)
			r := run(t, p, t.TempDir(), token(t, p), updates)
			_, err := p.Agents.Revoke(t.Context(), p.AwaitOnline(t, time.Time{}))
			require.NoError(t, err)
			err = r.end(t)
			require.ErrorContains(t, err, "revoked")
			require.ErrorContains(t, err, "fix")
		})
	}
}

// TestRegister_NamesReason: the error of a refused token has the fix, and not the token.
func TestRegister_NamesReason(t *testing.T) {
	p := planetest.Start(t)
	revoked := token(t, p)
	parsed, err := controlapi.ParseToken(revoked)
	require.NoError(t, err)
	require.NoError(t, p.Tokens.Revoke(t.Context(), parsed.ID))
	for given, fix := range map[string]string{revoked: "pipeops-controlplane token create", "nonsense": "not an enrolment token"} {
		err := run(t, p, t.TempDir(), given).end(t)
		require.ErrorContains(t, err, fix)
		assert.NotContains(t, err.Error(), given)
		assert.NotContains(t, err.Error(), parsed.Credential())
	}
}

func TestToken_MovesAgent(t *testing.T) {
	from, to, dir := planetest.Start(t), planetest.Start(t), t.TempDir()
	first := run(t, from, dir, token(t, from))
	from.AwaitOnline(t, time.Time{})
	first.stop()
	run(t, to, dir, token(t, to))
	to.AwaitOnline(t, time.Time{})
}
