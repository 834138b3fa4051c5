package command

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"pipeops-runner": func() { os.Exit(Main(Build{Version: version, Commit: commit})) }})
}

// world is a fake agent and a control plane that knows it, both over real TLS.
type world struct {
	agent       *runnertest.Agent
	credentials string // the file
	creds       credentials.Credentials
	lists       atomic.Int64 // how often the list of all agents was asked for
}

func newWorld(t *testing.T) *world {
	t.Helper()
	agent := runnertest.Start(t, runnertest.NewBackend())
	w := &world{agent: agent, credentials: filepath.Join(t.TempDir(), "runner.json")}
	w.creds = agent.CA.Credentials(t, w.controlPlane(t, agent.Address), agent.Address)
	require.NoError(t, w.creds.Write(w.credentials))
	return w
}

func (w *world) controlPlane(t *testing.T, edge string) string {
	t.Helper()
	agents := []announce.Agent{
		{ID: runnertest.AgentID, Name: "shop", State: announce.StateOnline, Labels: map[string]string{"env": "prod", "tier": "shop"}, KubernetesVersion: "v1.36.3", LastSeen: time.Now(),
			Endpoints: []announce.Endpoint{{Address: edge, ServerName: runnertest.ServerName}},
			Capacity:  announce.Capacity{Nodes: 1, CPUMillis: 2000, MemoryBytes: 4 << 30}},
		{ID: "a5", Name: "away", State: announce.StateOffline, Labels: map[string]string{"env": "prod"},
			Endpoints: []announce.Endpoint{{Address: "127.0.0.1:1", ServerName: "a5.agents.example.com"}}},
	}
	list := func(context.Context, string) ([]announce.Agent, error) {
		w.lists.Add(1)
		return agents, nil
	}
	find := func(_ context.Context, _, nameOrID string) (announce.Agent, error) {
		for _, g := range agents {
			if nameOrID == g.ID || nameOrID == g.Name {
				return g, nil
			}
		}
		return announce.Agent{}, problem.Errorf(problem.NotFound, `did you mean "shop"?`, "no agent has that name or ID")
	}
	identify := func(r *http.Request) (string, error) {
		name, err := credentials.CallerFromTLS(r.TLS, runnertest.TrustDomain)
		if err != nil {
			err = problem.Errorf(problem.Unauthorized, "use the credentials that `pipeops-controlplane runner create` wrote", "%v", err)
		}
		return name, err
	}
	mux := http.NewServeMux()
	mux.Handle(announce.SnapshotPath, server.SnapshotHandler(list, identify))
	mux.Handle("GET "+announce.VersionPath, server.VersionHandler("1.2.3"))
	mux.Handle("GET "+announce.AgentPath, server.AgentHandler(find, identify))
	mux.Handle("GET "+announce.TimelinePath, server.TimelineHandler(happened(t), identify))
	return w.agent.CA.ServeControlPlane(t, mux)
}

// TestScripts runs the command lines in testdata/script, each with a fake agent
// of its own. They read as documentation of what the commands print.
func TestScripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/script/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.agent.Backend.Log(
				runnerapi.LogLine{Time: time.Now().Add(-time.Hour), Pod: "web-1", Line: "starting"},
				runnerapi.LogLine{Time: time.Now(), Pod: "web-2", Line: "listening on :8080"},
			)
			testscript.Run(t, testscript.Params{
				Files:               []string{file},
				RequireExplicitExec: true, RequireUniqueNames: true,
				Setup: func(env *testscript.Env) error {
					env.Setenv(cmdutil.EnvCredentials, w.credentials)
					// The race detector has each process wait a second at its end, for stragglers.
					env.Setenv("GORACE", "atexit_sleep_ms=0")
					return nil
				},
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits":        exits,
					"tar-in-image": func(*testscript.TestScript, bool, []string) { w.agent.Backend.Machine() },
				},
			})
		})
	}
}

// exits CODE COMMAND ARG... runs a command and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND ARG...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := "0"
	if err != nil {
		code = strings.TrimPrefix(err.Error(), "exit status ")
	}
	if code != args[0] {
		ts.Fatalf("exit code %s, expected %s", code, args[0])
	}
}
