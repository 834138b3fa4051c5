package agent_test

import (
	"bytes"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// approvedToken is one whose registrations wait for the operator.
func approvedToken(t *testing.T, p *planetest.Plane) string {
	t.Helper()
	return p.Token(t, administration.TokenOptions{TTL: time.Hour, Uses: 1, Approve: true})
}

// observed starts an agent whose log and readiness can be read.
func observed(t *testing.T, p *planetest.Plane, dir, token string, change ...func(*agent.Options)) (r *running, log *logbook.Book, ready func() string) {
	t.Helper()
	log = &logbook.Book{}
	opts := optionsOf(t, p, dir, token, func(c *config.Config) { c.HealthAddress = freeport.Address(t) })
	opts.Log = zerolog.New(log)
	for _, f := range change {
		f(&opts)
	}
	return launch(t, opts), log, func() string { return answerOf(t, opts.Config.HealthAddress, "/readyz") }
}

// answerOf is what a path of an address says; empty while nothing answers.
func answerOf(t *testing.T, address, path string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// waiting is the one registration that waits.
func waiting(t *testing.T, p *planetest.Plane) store.Enrolment {
	t.Helper()
	list, err := p.Enrolments.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

// TestApproval_SurvivesRestart restarts the agent while it waits: the registration stays the same,
// and an approval reaches the agent within seconds.
func TestApproval_SurvivesRestart(t *testing.T) {
	p, dir := planetest.Start(t), t.TempDir()
	token := approvedToken(t, p)
	first, log, ready := observed(t, p, dir, token)
	await.Until(t, "it says what it waits for", func() bool { return strings.Contains(ready(), "waits for approval") })
	e := waiting(t, p)
	assert.Contains(t, ready(), "pipeops-controlplane agent approve "+e.ID)
	await.Until(t, "the log says so", func() bool { return log.Count("waits for approval", "agent approve "+e.ID) == 1 })
	first.stop()

	_, log, ready = observed(t, p, dir, token)
	await.Until(t, "it waits on", func() bool { return strings.Contains(ready(), "waits for approval") })
	assert.Equal(t, e.ID, waiting(t, p).ID, "the same registration")
	assert.Equal(t, e.Key, waiting(t, p).Key)
	agents, err := p.Agents.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, agents)

	_, err = p.Enrolments.Approve(t.Context(), e.ID)
	require.NoError(t, err)
	assert.Equal(t, e.ID, p.AwaitOnline(t, time.Time{}))
	assert.Equal(t, 1, log.Count("waits for approval"), "said once")
	await.Until(t, "it is ready", func() bool {
		return strings.Contains(ready(), `"ready":true`) || !strings.Contains(ready(), "identity:")
	})
}

func TestApproval_DeniedIsReportedOnce(t *testing.T) {
	p, dir := planetest.Start(t), t.TempDir()
	_, log, ready := observed(t, p, dir, approvedToken(t, p))
	await.Until(t, "it waits", func() bool { return strings.Contains(ready(), "waits for approval") })
	_, err := p.Enrolments.Deny(t.Context(), name, "not one of ours")
	require.NoError(t, err)
	await.Until(t, "it is told", func() bool { return strings.Contains(ready(), "was denied") })
	assert.Contains(t, ready(), "not one of ours")
	await.Until(t, "the log says so", func() bool { return log.Count("was denied", "not one of ours") == 1 })
	agents, err := p.Agents.List(t.Context())
	require.NoError(t, err)
	assert.Empty(t, agents)
}

const otherUID = "00000000-0000-4000-8000-000000000000"

// elsewhere is the tests' cluster with the UID of another one: a second API server
// would say no more.
type elsewhere struct {
	http.RoundTripper
	uid string
}

func (e elsewhere) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := e.RoundTripper.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/namespaces/kube-system") {
		return resp, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(body, []byte(e.uid), []byte(otherUID))))
	return resp, err
}

// inAnotherCluster has the agent believe that.
func inAnotherCluster(t *testing.T) func(*agent.Options) {
	t.Helper()
	env := kubetest.ControlPlane(t)
	ns := &corev1.Namespace{}
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Name: "kube-system"}, ns))
	return func(o *agent.Options) {
		o.Kubernetes = rest.CopyConfig(env.Agent)
		o.Kubernetes.Wrap(func(rt http.RoundTripper) http.RoundTripper { return elsewhere{rt, string(ns.UID)} })
	}
}

// copyState is what somebody does who sets a machine up from another's files.
func copyState(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	text, err := os.ReadFile(filepath.Join(from, "identity.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(to, "identity.json"), text, 0o600))
	return to
}

// TestIdentity_CopyIsRefused copies the state of a running agent to another cluster, with its name.
func TestIdentity_CopyIsRefused(t *testing.T) {
	plane := &logbook.Book{}
	p, dir := planetest.Start(t, func(c *controlplane.Config) { c.Log = zerolog.New(plane) }), t.TempDir()
	_, log, _ := observed(t, p, dir, token(t, p))
	id := p.AwaitOnline(t, time.Time{})
	await.Until(t, "its tunnel is up", func() bool { return plane.Count("agent's tunnel is up") == 1 })

	clone, _, _ := observed(t, p, copyState(t, dir), "", inAnotherCluster(t))
	err := clone.end(t)
	for _, words := range []string{"identity of agent " + name, "as a copy", "AGENT_TOKEN", "pipeops-agent-identity", "identity.json"} {
		require.ErrorContains(t, err, words)
	}
	assert.Equal(t, 1, plane.Count("two agents use the same identity", otherUID))
	found, err := p.Agents.Get(t.Context(), id, 0)
	require.NoError(t, err)
	require.Len(t, found.Agent.Clones, 1)
	assert.Equal(t, otherUID, found.Agent.Clones[0].ClusterUID)
	p.AwaitOnline(t, p.Clock.Now())
	assert.Equal(t, 1, plane.Count("agent's tunnel is up"), "the agent kept its tunnel")
	assert.Zero(t, log.Count("tunnel is down"))
	assert.Zero(t, log.Count("heartbeat failed"))
	assert.Equal(t, announce.StateOnline, found.Agent.State)

	// With its own token, the copy registers as another agent.
	_, log, _ = observed(t, p, copyState(t, dir), token(t, p), inAnotherCluster(t), func(o *agent.Options) { o.Config.ClusterName = "copy" })
	await.Until(t, "the copy is online", func() bool {
		agents, err := p.Agents.List(t.Context())
		require.NoError(t, err)
		return slices.ContainsFunc(agents, func(a announce.Agent) bool {
			return a.Name == "copy" && a.ID != id && a.State == announce.StateOnline
		})
	})
	assert.Equal(t, 1, log.Count("registering again", "as a copy"))
}
