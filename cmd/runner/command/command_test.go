package command

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
)

// running is a command in this process.
type running struct {
	out, err logbook.Book
	cancel   context.CancelFunc
	code     chan int
}

func (w *world) start(t *testing.T, terminal bool, stdin string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, code: make(chan int, 1)}
	t.Cleanup(cancel)
	args = append([]string{"--credentials", w.credentials}, args...)
	go func() {
		r.code <- execute(ctx, args, cmdutil.Streams{In: strings.NewReader(stdin), Out: &r.out, Err: &r.err, Terminal: terminal})
	}()
	return r
}

func (w *world) run(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	r := w.start(t, false, "", args...)
	return r.ended(t), r.out.String(), r.err.String()
}

// ended waits for the command's end and returns its exit code.
func (r *running) ended(t *testing.T) int {
	t.Helper()
	return await.Receive(t, r.code, "the end of the command")
}

func (r *running) sees(t *testing.T, text string) {
	t.Helper()
	await.Until(t, fmt.Sprintf("the command has printed %q", text), func() bool {
		return strings.Contains(r.out.String()+r.err.String(), text)
	})
}

// TestCommand_RequestsOneAgent: with ten thousand agents, the list has megabytes.
func TestCommand_RequestsOneAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, agent := range []string{"shop", runnertest.AgentID} {
		for _, command := range [][]string{{"cluster"}, {"apps"}, {"timeline"}, {"kubeconfig"}} {
			code, _, stderr := w.run(t, append(command, agent)...)
			require.Equal(t, cmdutil.ExitOK, code, stderr)
		}
	}
	code, _, stderr := w.run(t, "apps", "nobody")
	assert.Equal(t, cmdutil.ExitNotFound, code)
	assert.Contains(t, stderr, "fix: did you mean")
	assert.Zero(t, w.lists.Load())
}

func TestDeploy_ProgressOnTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(t, true, "", "deploy", "shop", "web", "--image", "slow")
	r.sees(t, "Progressing")
	w.agent.Backend.Finish(runnerapi.Key{Namespace: "production", Name: "web"})
	assert.Equal(t, cmdutil.ExitOK, r.ended(t), r.err.String())
	assert.Contains(t, r.err.String(), "\r\x1b[K")
	assert.NotContains(t, r.err.String(), "\n", "nothing of the progress stays")
	assert.Contains(t, r.out.String(), "Healthy")
}

func TestSlowCall_IsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	released := make(chan struct{})
	w.agent.Backend.Intercept = func(ctx context.Context, _ runnertest.Call) error {
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r := w.start(t, true, "", "secret", "list", "shop")
	told := regexp.MustCompile(`waiting for agent shop: list-secrets, [1-9][0-9]*s`)
	await.Until(t, "it is told twice", func() bool { return len(told.FindAllString(r.err.String(), -1)) >= 2 })
	close(released)
	assert.Equal(t, cmdutil.ExitOK, r.ended(t), r.err.String())
	lines := told.Split(r.err.String(), -1)
	assert.Equal(t, "\r\x1b[Kthere are none in namespace production; -n names another, -A all\n", lines[len(lines)-1], "nothing of it stays")
}

func TestDeploy_Interrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(t, false, "", "deploy", "shop", "web", "--image", "slow")
	r.sees(t, "Progressing")
	r.cancel()
	assert.Equal(t, cmdutil.ExitInterrupted, r.ended(t))
	assert.Contains(t, r.err.String(), "the rollout of production/web continues in the cluster")
	assert.Contains(t, r.err.String(), "pipeops-runner status shop web -n production --wait")
}

// TestSuperseded: a later change or run takes the place of one that somebody waits for, and goes
// on.
func TestSuperseded(t *testing.T) {
	t.Parallel()
	for kind, run := range map[string][]string{
		"":         {"deploy", "shop", "web", "--image", "slow"},
		"job":      {"job", "run", "shop", "web", "--image", "slow"},
		"pipeline": {"pipeline", "run", "shop", "web", "-f", "testdata/slow.yaml"},
	} {
		t.Run(run[0], func(t *testing.T) {
			t.Parallel()
			w, under, later := newWorld(t), "production/web: Waiting", run
			if kind == "" {
				under, later = "Progressing", append(slices.Clone(run), "--env", "N=2")
			}
			first := w.start(t, false, "", run...)
			first.sees(t, under)
			second := w.start(t, false, "", later...)
			assert.Equal(t, cmdutil.ExitSuperseded, first.ended(t))
			assert.Contains(t, first.err.String(), "superseded")
			assert.Contains(t, first.err.String(), strings.TrimSpace("pipeops-runner "+kind)+" status shop web -n production --wait")
			second.sees(t, under)
			w.agent.Backend.Finish(runnerapi.Key{Namespace: "production", Name: "web"})
			assert.Equal(t, cmdutil.ExitOK, second.ended(t), second.err.String())
		})
	}
}

func TestDelete_WaitsForPods(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct{ make, remove []string }{
		"App": {[]string{"deploy", "shop", "web", "--image", "sticky"}, []string{"delete", "shop", "web"}},
		"job": {[]string{"job", "run", "shop", "web", "--image", "sticky"}, []string{"job", "delete", "shop", "web"}},
		"pipeline": {
			[]string{"pipeline", "run", "shop", "web", "-f", "testdata/sticky.yaml"}, []string{"pipeline", "delete", "shop", "web"},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			code, _, errs := w.run(t, test.make...)
			require.Equal(t, cmdutil.ExitOK, code, errs)
			r := w.start(t, false, "", test.remove...)
			r.sees(t, what+" production/web is being deleted; waits for pod web-0 to stop")
			assert.NotContains(t, r.err.String(), "deleted: "+what)
			require.NoError(t, w.agent.Backend.Apps().Delete(t.Context(), runnerapi.Key{Namespace: "production", Name: "web"}, runnerapi.WriteOptions{}))
			assert.Equal(t, cmdutil.ExitOK, r.ended(t), r.err.String())
			assert.Contains(t, r.err.String(), "deleted: "+what+" production/web")
		})
	}
}

func TestDeploy_AgentRestarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(t, false, "", "deploy", "shop", "web", "--image", "slow")
	r.sees(t, "Progressing")
	w.agent.Stop()
	w.agent.Backend.Finish(runnerapi.Key{Namespace: "production", Name: "web"})
	w.agent.Start()
	assert.Equal(t, cmdutil.ExitOK, r.ended(t), r.err.String())
	deploys := 0
	for _, call := range w.agent.Backend.Calls() {
		if call.Verb == "Apps.Deploy" {
			deploys++
		}
	}
	assert.Equal(t, 1, deploys, "applied once")
}

func TestLogs_FollowUntilInterrupted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	code, _, stderr := w.run(t, "deploy", "shop", "web", "--image", "a")
	require.Equal(t, cmdutil.ExitOK, code, stderr)
	r := w.start(t, false, "", "logs", "shop", "web", "-f")
	w.agent.Backend.Log(runnerapi.LogLine{Time: time.Now(), Pod: "web-1", Line: "hello"})
	r.sees(t, "hello")
	r.cancel()
	assert.Equal(t, cmdutil.ExitOK, r.ended(t), r.err.String())
	r = w.start(t, false, "", "access-log", "shop", "web", "-f", "--grep", `" 200 `)
	r.sees(t, "203.0.113.7")
	r.cancel()
	assert.Equal(t, cmdutil.ExitOK, r.ended(t), r.err.String())
}

func TestNamespaceDelete_AsksOnTerminal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(t, true, "no\n", "namespace", "delete", "shop", "production")
	assert.Equal(t, cmdutil.ExitFailure, r.ended(t))
	assert.Contains(t, r.err.String(), "nothing was deleted")
	r = w.start(t, true, "production\n", "namespace", "delete", "shop", "production")
	assert.Equal(t, cmdutil.ExitOK, r.ended(t), r.err.String())
}

// TestAgentsWatch_NoBroker, and then with one that is unreachable.
func TestAgentsWatch_NoBroker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(t, false, "", "agents", "--watch")
	r.sees(t, "shop (a1)  online")
	r.cancel()
	assert.Equal(t, cmdutil.ExitOK, r.ended(t))
	assert.Contains(t, r.err.String(), "the credentials name no broker")
	w.creds.Broker.URL = "amqp://nobody:secret@127.0.0.1:1/"
	require.NoError(t, w.creds.Write(w.credentials))
	r = w.start(t, false, "", "agents", "--watch", "--aside", "-o", "json")
	r.sees(t, `"initial":true`)
	r.cancel()
	assert.Equal(t, cmdutil.ExitOK, r.ended(t))
	assert.NotContains(t, r.err.String(), "secret")
}

func TestCredentials_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, issue := range map[string]func(*credentials.Credentials){
		"of an agent": func(c *credentials.Credentials) {
			c.Certificate, c.Key = runnertest.PEM(t, w.agent.CA.Issue(t, credentials.AgentURI(runnertest.TrustDomain, "a1")))
		},
		"expired": func(c *credentials.Credentials) {
			c.Certificate, c.Key = runnertest.PEM(t, w.agent.CA.IssueAt(t, time.Now().Add(-2*time.Hour), credentials.RunnerURI(runnertest.TrustDomain, "x")))
		},
		"another CA": func(c *credentials.Credentials) { c.CA = runnertest.NewCA(t).PEM() },
	} {
		t.Run(name, func(t *testing.T) {
			creds := w.creds
			issue(&creds)
			file := filepath.Join(t.TempDir(), "runner.json")
			require.NoError(t, creds.Write(file))
			code, _, stderr := w.run(t, "agents", "--credentials", file)
			assert.Equal(t, cmdutil.ExitRefused, code, stderr)
			assert.Contains(t, stderr, "pipeops-controlplane runner create", stderr)
		})
	}
}

// TestProxy_AllConnections has a control plane and an edge that nothing but the proxy reaches.
func TestProxy_AllConnections(t *testing.T) {
	const api, edge = runnertest.BehindProxy + ":8443", "edge.invalid:8444"
	w := newWorld(t)
	served, err := url.Parse(w.controlPlane(t, edge))
	require.NoError(t, err)
	via := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Account: "me:secret", Sites: map[string]string{
		api: "127.0.0.1:" + served.Port(), edge: w.agent.Address,
	}})
	w.creds.ControlPlane, w.creds.Edge = "https://"+api, edge
	require.NoError(t, w.creds.Write(w.credentials))
	t.Setenv("HTTPS_PROXY", via.URL("me:secret"))
	code, stdout, stderr := w.run(t, "cluster", "shop")
	assert.Equal(t, cmdutil.ExitOK, code, stdout+stderr)
	assert.Equal(t, []string{api, edge}, via.Asked())
	t.Setenv("HTTPS_PROXY", via.URL("me:canary"))
	code, _, stderr = w.run(t, "agents")
	assert.Equal(t, cmdutil.ExitUnreachable, code)
	assert.Contains(t, stderr, "the proxy http://me:xxxxx@"+via.Address()+` in HTTPS_PROXY: it does not accept the password of the user "me" (407`)
	assert.Contains(t, stderr, "fix: correct the user and the password in HTTPS_PROXY")
}
