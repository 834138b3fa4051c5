package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	exampleAgent    = "shop"
	examplePatience = 8 * time.Minute
)

// shop is where the examples of the Runner API's reference run: an agent called
// shop on a real cluster, with what it asks Kubernetes written down, and a
// Runner beyond a real tunnel.
type shop struct {
	env   *kubetest.Env
	rec   *recorder
	agent *running
	dir   string   // where the examples run, with the Runner's credentials in it
	vars  []string // their environment
}

func openShop(t *testing.T) *shop {
	t.Helper()
	s := &shop{env: kubetest.Full(t), rec: newRecorder(), dir: t.TempDir()}
	img, err := cluster.BuildProgram(t.Context(), cluster.Program{Package: "./test/apps/hello", Name: "hello", Ref: harness.ExampleImage})
	require.NoError(t, err)
	require.NoError(t, s.env.Cluster.LoadImage(t.Context(), harness.ExampleImage, img))
	p := planetest.Start(t)
	s.allowAll(t)
	s.runAgent(t, p)
	p.AwaitOnline(t, time.Time{})
	s.becomeRunner(t, p)
	s.prepare(t)
	return s
}

// allowAll grants what docs/deployer/nodes.md tells of, and has a policy that names what no
// other rule allows.
func (s *shop) allowAll(t *testing.T) {
	t.Helper()
	sources, err := deployments.Sources()
	require.NoError(t, err)
	for _, manifest := range []string{string(deployments.NodeRights()), string(deployments.KubernetesAPIRights()), string(sources), `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: ` + kubetest.AgentNamespace + `, name: pipeops-policy}
data:
  policy.yaml: |
    rules: [{name: all, commands: ["*", exec-app, get-app-access-log, port-forward-app, cordon-node, uncordon-node, drain-node, apply-manifests, delete-set, get-join-token, kubernetes-api,
        put-release, rollback-release, delete-release, put-build, put-source, approve-preview, approve-promotion], kinds: ["*"], hosts: ["*"], annotations: ["*"], kubernetes: {user: pipeops-runner, groups: [pipeops-runners]}}]
`} {
		s.env.Apply(t, manifest)
	}
	s.vars = append(s.vars, "NODE="+s.env.Cluster.NodeName())
}

// runAgent runs the agent as in its pod: it keeps its identity in the cluster.
func (s *shop) runAgent(t *testing.T, p *planetest.Plane) {
	t.Helper()
	given := token(t, p)
	keepToken(t, s.env, given)
	s.agent = launch(t, agent.Options{
		Config: config.Config{
			ControlPlaneURL: p.URL(), Token: given, TokenSecret: tokenSecret, ClusterName: exampleAgent,
			Namespace: kubetest.AgentNamespace, HealthAddress: "127.0.0.1:0",
			K3sURL: "https://server.example.com:6443", K3sToken: "K10token", // it is not k3s, but may be called so
			BuildImage: harness.ExampleImage, BuildToolsImage: harness.ExampleImage, // builds that fail; internal/build has one that does not
		},
		Version: "test", Log: zerolog.New(s.rec), Kubernetes: s.rec.config(s.env.Agent), Now: p.Clock.Now,
	})
}

// becomeRunner makes credentials, and from them, as docs/reference/runner-api.md says,
// curl's files and variables.
func (s *shop) becomeRunner(t *testing.T, p *planetest.Plane) {
	t.Helper()
	creds, err := p.Runners.Create(t.Context(), "ci", time.Hour, false)
	require.NoError(t, err)
	file := filepath.Join(s.dir, "runner.json")
	require.NoError(t, creds.Write(file))
	program, err := programs.Runner.Build(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(s.dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(program, filepath.Join(s.dir, "bin", "pipeops-runner")))
	kubectl := "#!/bin/sh\nHOME=" + s.dir + " exec " + strings.Join(s.env.Cluster.KubectlCommand(t.Context()).Args, " ") + " \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "bin", "kubectl"), []byte(kubectl), 0o755))
	s.vars = append(append(os.Environ(), s.vars...), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"),
		"PIPEOPS_RUNNER_CREDENTIALS="+file)
	byHand, err := harness.ShellWith("docs/reference/runner-api.md", "> runner.key")
	require.NoError(t, err)
	address := s.run(t, byHand+"echo $AGENT $EDGE")
	at := strings.Fields(address)
	require.Len(t, at, 2, address)
	s.vars = append(s.vars, "AGENT="+at[0], "EDGE="+at[1])
}

// run runs a line of shell, and answers what it prints.
func (s *shop) run(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), examplePatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", line)
	cmd.Dir, cmd.Env = s.dir, s.vars
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s%s\nthe agent's complaints:\n%s", line, out, stderr.String(), s.rec.complaints())
	return string(out)
}

// dryRun is a write's curl that changes nothing.
func dryRun(c runnerapi.Call) string {
	_, path, _ := strings.Cut(c.Curl(), `"https://$AGENT`)
	path, _, _ = strings.Cut(path, `"`)
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	return strings.Replace(c.Curl(), path+`"`, path+mark+`dryRun=true"`, 1)
}

// appliedCommits gives the source the history that a Git server would have given it.
func (s *shop) appliedCommits(t *testing.T) {
	t.Helper()
	now, before := strings.Repeat("c0ffee12", 5), "0a1b2c3d4e5f"+strings.Repeat("0", 28)
	const at = "2026-01-02T03:04:05Z"
	s.seen(t, fmt.Sprintf(`{"commit":%q,"history":[{"commit":%q,"appliedAt":%q},{"commit":%q,"appliedAt":%q}]}`, now, now, at, before, at))
}

// openRequest has the agent have seen a pull request of a fork, and one whose preview is where the
// source itself is.
func (s *shop) openRequest(t *testing.T) {
	t.Helper()
	_, err := s.env.Cluster.Kubectl(t.Context(), "-n", "production", "patch", "sources.pipeops.io", "web", "--type", "merge", "-p",
		`{"spec":{"previews":{},"report":{"forge":"github","credentials":"git-status"}}}`)
	require.NoError(t, err)
	s.seen(t, `{"previews":{"items":[{"number":12,"commit":"0a1b2c3d4e5f60718293a4b5c6d7e8f901234567","fork":true,"state":"NeedsApproval","since":"2026-01-02T03:04:05Z"},
		{"number":11,"commit":"0a1b2c3d4e5f60718293a4b5c6d7e8f901234567","state":"Active","namespace":"production","since":"2026-01-02T03:04:05Z"}]}}`)
}

// seen writes into the status of the source web.
func (s *shop) seen(t *testing.T, status string) {
	t.Helper()
	s.run(t, "pipeops-runner source sync shop web --wait=1m || test $? = 3") // the agent does not write the status meanwhile
	_, err := s.env.Cluster.Kubectl(t.Context(), "-n", "production", "patch", "sources.pipeops.io", "web", "--subresource", "status", "--type", "merge", "-p", `{"status":`+status+`}`)
	require.NoError(t, err)
}

// arrange makes what the example of a call is about.
func (s *shop) arrange(t *testing.T, c runnerapi.Call) {
	t.Helper()
	switch c.ID {
	case "rollback-source":
		s.appliedCommits(t)
	case "approve-promotion":
		_, err := s.env.Cluster.Kubectl(t.Context(), "-n", "production", "patch", "sources.pipeops.io", "web", "--type", "merge", "-p",
			`{"spec":{"promote":{"from":"staging","approval":true}}}`)
		require.NoError(t, err)
		s.seen(t, `{"promotion":{"from":"production/staging","candidate":"0a1b2c3d4e5f60718293a4b5c6d7e8f901234567"}}`)
	case "list-source-previews", "approve-preview":
		s.openRequest(t)
	}
}

// TestExamples runs every example of docs/reference/runner-api.md as it is written,
// first pipeops-runner's, with a dry run of each write before it, then curl's.
// What the agent asks Kubernetes meanwhile has to be what deployments/rights.go
// says, no more and no less.
func TestExamples(t *testing.T) {
	suite.Release(t, "every example of the Runner API's reference, and the rights that it takes")
	s := openShop(t)
	s.monitor(t)
	require.NoError(t, s.env.Cluster.WaitMetrics(t.Context()))
	for _, c := range runnerapi.Calls() {
		t.Run("pipeops-runner "+c.Method+c.Path, func(t *testing.T) {
			for _, line := range before(c) {
				s.run(t, line)
			}
			s.arrange(t, c)
			if c.Method != http.MethodGet && c.ID != "put-source" && c.ID != "rollback-source" { // whose dry runs ask a server that is not here; internal/source does that
				s.run(t, dryRun(c))
			}
			t.Log(c.Example + "\n" + s.run(t, c.Example))
			if c.Method == http.MethodPut {
				s.run(t, c.Curl()) // of what is there now
			}
		})
	}
	for _, c := range runnerapi.Calls() {
		if c.Upgrades() {
			continue
		}
		t.Run("curl "+c.Method+c.Path, func(t *testing.T) {
			line := c.Curl()
			s.arrange(t, c)
			if strings.HasSuffix(c.Path, "/drain") { // the cluster's only node has what the next examples need
				line = dryRun(c)
			}
			answer := s.run(t, line)
			if strings.HasSuffix(c.Path, "/restart") { // its operation is asked for further on
				var app runnerapi.App
				require.NoError(t, json.Unmarshal([]byte(answer), &app))
				s.vars = append(s.vars, "OPERATION="+app.Operation)
			}
		})
	}
	t.Run("the rest of the document", func(t *testing.T) {
		s.run(t, "pipeops-runner secret set shop web-env --from-literal GREETING=hello")
		s.run(t, "pipeops-runner deploy shop web --image "+harness.ExampleImage)
		blocks, err := harness.Shell("docs/reference/runner-api.md")
		require.NoError(t, err)
		manifests, err := harness.Shell("docs/deployer/manifests.md")
		require.NoError(t, err)
		for _, block := range append(append(blocks, manifests...), "pipeops-runner delete shop web") {
			s.run(t, block)
		}
	})
	t.Run("jobs and pipelines", func(t *testing.T) {
		blocks, err := harness.Shell("docs/deployer/jobs.md")
		require.NoError(t, err)
		for _, block := range blocks {
			t.Log(s.run(t, block))
		}
	})
	t.Run("monitoring", func(t *testing.T) { s.readMonitoring(t) })
	t.Run("copies", func(t *testing.T) { s.copies(t) })
	t.Run("the node is drained", func(t *testing.T) {
		examples, err := harness.CommandLine("node drain")
		require.NoError(t, err)
		for _, line := range examples {
			t.Log(line + "\n" + s.run(t, strings.Replace(line, " node-1", " $NODE", 1)))
		}
		s.run(t, "pipeops-runner node uncordon shop $NODE")
	})
	t.Run("upkeep", func(t *testing.T) { s.exercise(t) }) // and then the agent is stopped
	t.Run("rights", func(t *testing.T) { s.compare(t) })
}
