package cmdutil

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// world is a command line beside a fake agent, and a control plane that knows it and another one.
type world struct {
	*CLI
	out, err bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	agent := runnertest.Start(t, runnertest.NewBackend())
	agents := []announce.Agent{
		{ID: runnertest.AgentID, Name: "shop", State: announce.StateOnline, Labels: map[string]string{"env": "prod"},
			Endpoints: []announce.Endpoint{{Address: agent.Address, ServerName: runnertest.ServerName}}},
		{ID: "a5", Name: "away", State: announce.StateOffline, Labels: map[string]string{"env": "prod", "tier": "lost"},
			Endpoints: []announce.Endpoint{{Address: "127.0.0.1:1", ServerName: "a5.agents.example.com"}}},
	}
	identify := func(*http.Request) (string, error) { return runnertest.RunnerName, nil }
	mux := http.NewServeMux()
	mux.Handle(announce.SnapshotPath, server.SnapshotHandler(func(context.Context, string) ([]announce.Agent, error) { return agents, nil }, identify))
	mux.Handle("GET "+announce.VersionPath, server.VersionHandler("1.2.3"))
	mux.Handle("GET "+announce.AgentPath, server.AgentHandler(func(_ context.Context, _, name string) (announce.Agent, error) {
		if name != "shop" {
			return announce.Agent{}, problem.Errorf(problem.NotFound, "", "no agent has that name or ID")
		}
		return agents[0], nil
	}, identify))
	file := filepath.Join(t.TempDir(), "runner.json")
	creds := agent.CA.Credentials(t, agent.CA.ServeControlPlane(t, mux), agent.Address)
	require.NoError(t, creds.Write(file))
	w := &world{}
	w.CLI = &CLI{Streams: Streams{Out: &w.out, Err: &w.err}, Defaults: Defaults{Credentials: file}}
	return w
}

// run runs a command, and returns what it printed.
func (w *world) run(t *testing.T, cmd *cobra.Command, args ...string) (code int, out, err string) {
	t.Helper()
	w.out.Reset()
	w.err.Reset()
	cmd.SetArgs(args)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	code = w.Exit(t.Context(), "pipeops-runner test", cmd.ExecuteContext(t.Context()))
	return code, w.out.String(), w.err.String()
}

// deploy is a command that deploys an App and waits.
func (w *world) deploy(image string) *cobra.Command {
	r := &Rollout{CLI: w.CLI}
	cmd := &cobra.Command{Use: "deploy", RunE: func(cmd *cobra.Command, args []string) error {
		return r.Run(cmd.Context(), args[0], "web", func(ctx context.Context, t *Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
			return t.Apps().Deploy(ctx, key, runnerapi.AppSpec{Image: image}, opts)
		})
	}}
	r.Add(cmd)
	return cmd
}

func TestRollout(t *testing.T) {
	w := newWorld(t)
	for name, c := range map[string]struct {
		args []string
		code int
		out  string
		err  string
	}{
		"waits":         {[]string{"shop"}, ExitOK, "Healthy", ""},
		"does not wait": {[]string{"shop", "--no-wait"}, ExitOK, "web", "accepted: production/web; it continues in the cluster"},
		"dry run":       {[]string{"shop", "--dry-run"}, ExitOK, "web", "nothing was changed"},
		"missing agent": {[]string{"none"}, ExitNotFound, "", "no agent has that name"},
		"fleet":         {[]string{"", "-l", "env=prod,tier!=lost"}, ExitOK, "succeeded", "agent shop: done"},
		"away":          {[]string{"", "-l", "tier=lost"}, ExitUnreachable, "failed", "agent away: failed"},
		"no such label": {[]string{"", "-l", "env=none"}, ExitNotFound, "", "no agent has the labels env=none"},
		"bad wave":      {[]string{"", "-l", "env=prod", "--wave", "none"}, ExitUsage, "", "--wave"},
	} {
		t.Run(name, func(t *testing.T) {
			code, out, err := w.run(t, w.deploy("example.com/web:1"), c.args...)
			assert.Equal(t, c.code, code, err)
			assert.Contains(t, out, c.out)
			assert.Contains(t, err, c.err)
		})
	}
}

func TestListing(t *testing.T) {
	w := newWorld(t)
	code, _, said := w.run(t, w.deploy("example.com/web:1"), "shop")
	require.Equal(t, ExitOK, code, said)
	require.NoError(t, w.On(t.Context(), "shop", func(ctx context.Context, target *Target) error {
		_, err := target.Namespaces().Set(ctx, "production", runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
		return err
	}))
	list := func() *cobra.Command {
		return Listing[runnerapi.App]{
			Of:   func(c *client.Client) Lister[runnerapi.App] { return c.Apps() },
			List: func(apps []runnerapi.App) any { return apps },
			Table: func(out io.Writer, apps ...runnerapi.App) {
				cli.Row(out, "NAMESPACE", "NAME")
				for _, a := range apps {
					cli.Row(out, a.Namespace, a.Name)
				}
			},
		}.Command(w.CLI)
	}
	for args, want := range map[string][2]string{
		"":            {"production", ""},
		"-A":          {"production", ""},
		"-n=staging":  {"", "there are none in namespace staging"},
		"--output=id": {"", "--output"},
	} {
		_, out, err := w.run(t, list(), append([]string{"shop"}, strings.Fields(args)...)...)
		assert.Contains(t, out, want[0], args+err)
		assert.Contains(t, err, want[1], args)
	}
}

func TestCompletion(t *testing.T) {
	w := newWorld(t)
	_, _, said := w.run(t, w.deploy("example.com/web:1"), "shop")
	cmd, namespace := &cobra.Command{}, ""
	cmd.SetContext(t.Context())
	NamespaceFlag(cmd, &namespace)
	agents, _ := w.CompleteAgent(cmd, nil, "")
	assert.Equal(t, []string{"shop", "away"}, agents)
	apps, _ := w.CompleteApp(cmd, []string{"shop"}, "")
	assert.Equal(t, []string{"web"}, apps, said)
	nodes, _ := w.CompleteNode(cmd, []string{"shop"}, "")
	assert.Equal(t, []string{runnertest.NodeName}, nodes)
	none, _ := w.CompleteApp(cmd, []string{"away"}, "")
	assert.Empty(t, none, "an error would spoil the line")
}

func TestLogin_ControlPlane(t *testing.T) {
	w := newWorld(t)
	l, err := w.Login(t.Context())
	require.NoError(t, err)
	version, err := l.ServerVersion(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "1.2.3", version)
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0") // whose connections nobody takes
	require.NoError(t, err)
	defer func() { _ = silent.Close() }()
	unreachable := func(patience time.Duration) string {
		l.ControlPlane, l.patience = "https://"+silent.Addr().String(), patience
		_, err := l.Agents(t.Context())
		var failed *ExitError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, ExitUnreachable, failed.Code)
		assert.Contains(t, failed.Fix, "check that it runs at "+l.ControlPlane)
		return err.Error()
	}
	assert.Contains(t, unreachable(100*time.Millisecond), "the control plane could not be reached for 100ms: it does not answer")
	require.NoError(t, silent.Close())
	assert.Contains(t, unreachable(100*time.Millisecond), "the control plane could not be reached for 100ms")
	assert.Regexp(t, `the control plane could not be reached: dial tcp 127.0.0.1:[0-9]+: .*refused`, unreachable(0))
	stranger, err := newWorld(t).Login(t.Context())
	require.NoError(t, err)
	l.ControlPlane = stranger.ControlPlane
	_, err = l.Agents(t.Context())
	assert.Equal(t, ExitRefused, exitCode(t.Context(), err))
}
