package main

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnerapitest"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
)

// running is a command in this process.
type running struct {
	out, err logbook.Book
	cancel   context.CancelFunc
	code     chan int
}

func (w *world) start(t *testing.T, terminal bool, stdin string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r := &running{cancel: cancel, code: make(chan int, 1)}
	t.Cleanup(cancel)
	args = append([]string{"--credentials", w.credentials}, args...)
	go func() {
		r.code <- execute(ctx, args, streams{in: strings.NewReader(stdin), out: &r.out, err: &r.err, terminal: terminal})
	}()
	return r
}

func (w *world) run(t *testing.T, args ...string) (int, string, string) {
	t.Helper()
	r := w.start(t, false, "", args...)
	return <-r.code, r.out.String(), r.err.String()
}

func (r *running) sees(t *testing.T, text string) {
	t.Helper()
	require.Eventually(t, func() bool { return strings.Contains(r.out.String()+r.err.String(), text) }, 20*time.Second, 5*time.Millisecond,
		"waiting for %q", text)
}

func TestProgressOnATerminalIsOneLine(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, true, "", "deploy", "shop", "web", "--image", "slow")
	r.sees(t, "Progressing")
	w.agent.Backend.Finish(runnerapi.Key{Namespace: "production", Name: "web"})
	assert.Equal(t, exitOK, <-r.code, r.err.String())
	assert.Contains(t, r.err.String(), "\r\x1b[K")
	assert.NotContains(t, r.err.String(), "\n", "nothing of the progress stays")
	assert.Contains(t, r.out.String(), "Healthy")
}

func TestACallThatTakesLongIsTold(t *testing.T) {
	w := newWorld(t)
	released := make(chan struct{})
	w.agent.Backend.Intercept = func(ctx context.Context, _ runnerapitest.Call) error {
		select {
		case <-released:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r := w.start(t, true, "", "secret", "list", "shop")
	r.sees(t, "waiting for agent shop: list-secrets, 1s")
	r.sees(t, "waiting for agent shop: list-secrets, 2s")
	close(released)
	assert.Equal(t, exitOK, <-r.code, r.err.String())
	_, after, _ := strings.Cut(r.err.String(), "list-secrets, 2s")
	assert.Equal(t, "\r\x1b[Kthere are none in namespace production; -n names another\n", after, "nothing of it stays")
}

func TestInterruptedWaitSaysThatItGoesOn(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, false, "", "deploy", "shop", "web", "--image", "slow")
	r.sees(t, "Progressing")
	r.cancel()
	assert.Equal(t, exitInterrupted, <-r.code)
	assert.Contains(t, r.err.String(), "the rollout of production/web goes on in the cluster")
	assert.Contains(t, r.err.String(), "pipeops-runner status shop web -n production --wait")
}

func TestDeployOutlivesAnAgentThatIsReplaced(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, false, "", "deploy", "shop", "web", "--image", "slow")
	r.sees(t, "Progressing")
	w.agent.Stop()
	w.agent.Backend.Finish(runnerapi.Key{Namespace: "production", Name: "web"})
	w.agent.Start()
	assert.Equal(t, exitOK, <-r.code, r.err.String())
	deploys := 0
	for _, call := range w.agent.Backend.Calls() {
		if call.Verb == "Deploy" {
			deploys++
		}
	}
	assert.Equal(t, 1, deploys, "applied once")
}

func TestFollowedLogsEndWithTheInterrupt(t *testing.T) {
	w := newWorld(t)
	code, _, stderr := w.run(t, "deploy", "shop", "web", "--image", "a")
	require.Equal(t, exitOK, code, stderr)
	r := w.start(t, false, "", "logs", "shop", "web", "-f")
	w.agent.Backend.Log(runnerapi.LogLine{Time: time.Now(), Pod: "web-1", Line: "hello"})
	r.sees(t, "hello")
	r.cancel()
	assert.Equal(t, exitOK, <-r.code, r.err.String())
}

func TestNamespaceDeleteAsksOnATerminal(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, true, "no\n", "namespace", "delete", "shop", "production")
	assert.Equal(t, exitFailure, <-r.code)
	assert.Contains(t, r.err.String(), "nothing was deleted")
	r = w.start(t, true, "production\n", "namespace", "delete", "shop", "production")
	assert.Equal(t, exitOK, <-r.code, r.err.String())
}

func TestWatchWithoutABroker(t *testing.T) {
	w := newWorld(t)
	r := w.start(t, false, "", "agents", "--watch")
	r.sees(t, "shop (a1)  online")
	r.cancel()
	assert.Equal(t, exitOK, <-r.code)
	assert.Contains(t, r.err.String(), "the credentials name no broker")
}

func TestWatchWhileTheBrokerIsAway(t *testing.T) {
	w := newWorld(t)
	w.creds.Broker.URL = "amqp://nobody:secret@127.0.0.1:1/"
	require.NoError(t, w.creds.Write(w.credentials))
	r := w.start(t, false, "", "agents", "--watch", "--aside", "-o", "json")
	r.sees(t, `"initial":true`)
	r.cancel()
	assert.Equal(t, exitOK, <-r.code)
	assert.NotContains(t, r.err.String(), "secret")
}

func TestCredentialsThatAreNotTaken(t *testing.T) {
	w := newWorld(t)
	for name, issue := range map[string]func(*runnerapi.Credentials){
		"of an agent": func(c *runnerapi.Credentials) {
			c.Certificate, c.Key = pair(t, w.agent.CA.Issue(t, runnerapi.AgentURI(runnerapitest.TrustDomain, "a1")))
		},
		"expired": func(c *runnerapi.Credentials) {
			c.Certificate, c.Key = pair(t, w.agent.CA.IssueAt(t, time.Now().Add(-2*time.Hour), runnerapi.RunnerURI(runnerapitest.TrustDomain, "x")))
		},
		"another CA": func(c *runnerapi.Credentials) { c.CA = certPEM(runnerapitest.NewCA(t).Cert.Raw) },
	} {
		t.Run(name, func(t *testing.T) {
			creds := w.creds
			issue(&creds)
			file := filepath.Join(t.TempDir(), "runner.json")
			require.NoError(t, creds.Write(file))
			code, _, stderr := w.run(t, "agents", "--credentials", file)
			assert.Equal(t, exitRefused, code, stderr)
			assert.Contains(t, stderr, "pipeops-controlplane runner create", stderr)
		})
	}
}

func TestAControlPlaneThatIsDown(t *testing.T) {
	w := newWorld(t)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	w.creds.ControlPlane = "https://" + ln.Addr().String()
	require.NoError(t, w.creds.Write(w.credentials))
	code, _, stderr := w.run(t, "agents", "--patience", "100ms")
	assert.Equal(t, exitUnreachable, code)
	assert.Contains(t, stderr, "the control plane could not be reached for 100ms")
	assert.Contains(t, stderr, "fix: check that it runs at https://127.0.0.1:")
}

func TestAControlPlaneThatDoesNotAnswerIsWaitedForNoLongerThanPatienceLasts(t *testing.T) {
	w := newWorld(t)
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // whose connections nobody takes
	require.NoError(t, err)
	defer func() { _ = ln.Close() }()
	w.creds.ControlPlane = "https://" + ln.Addr().String()
	require.NoError(t, w.creds.Write(w.credentials))
	code, _, stderr := w.run(t, "agents", "--patience", "100ms")
	assert.Equal(t, exitUnreachable, code)
	assert.Contains(t, stderr, "the control plane could not be reached for 100ms: it does not answer")
}

func TestDistance(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		n    int
	}{{"", "", 0}, {"shop", "shop", 0}, {"shpo", "shop", 2}, {"sho", "shop", 1}, {"", "abc", 3}, {"kitten", "sitting", 3}} {
		assert.Equal(t, tc.n, distance(tc.a, tc.b), "%q %q", tc.a, tc.b)
		assert.Equal(t, tc.n, distance(tc.b, tc.a), "%q %q", tc.b, tc.a)
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte("image: a\nreplicas: 2\n"))
	f.Add([]byte("apiVersion: pipeops.io/v1alpha1\nkind: App\nmetadata: {name: web}\nspec: {image: a}\n"))
	f.Add([]byte("---\nimage: a\n---\nimage: b\n"))
	f.Add([]byte(`{"image":"a","image":"b"}`))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4096 {
			return
		}
		m, err := parseManifest(text)
		if err == nil && several(text) {
			t.Fatalf("one of several was taken: %+v", m)
		}
	})
}

func FuzzParsePort(f *testing.F) {
	f.Add("http=80:8080/udp")
	f.Add("=1")
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parsePort(s)
		if err == nil && (p.Port < 1 || p.Port > 65535 || p.Service < 0 || p.Service > 65535) {
			t.Fatalf("%q: %+v", s, p)
		}
	})
}

func FuzzParseSpec(f *testing.F) {
	f.Add([]byte("image: a\nargs: [x]\n"))
	f.Add([]byte("jobs:\n  - {name: a, image: b}\n"))
	f.Add([]byte("a: &a [*a]\n---\n{}"))
	f.Fuzz(func(_ *testing.T, text []byte) {
		if len(text) <= maxManifest {
			_ = parseSpec(text, &runnerapi.JobSpec{})
			_ = parseSpec(text, &runnerapi.PipelineSpec{})
		}
	})
}
