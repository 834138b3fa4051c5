package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const docsPatience = 10 * time.Minute

// shell runs the documentation's examples as they are written.
type shell struct {
	dir string
	env []string
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{dir: t.TempDir()}
	for _, ref := range []string{harness.ExampleImage, "docker.io/shop/web:1.4.2"} {
		require.NoError(t, sys.LoadProgramAs(t.Context(), "./test/apps/hello", ref))
	}
	var err error
	s.env, err = sys.ShellDir(s.dir, runner)
	require.NoError(t, err)
	s.env = append(s.env, "TAG=1.4.2")
	return s
}

func (s *shell) command(ctx context.Context, text string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = s.dir, s.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to be interrupted as a terminal does it
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

func (s *shell) run(t *testing.T, text string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), docsPatience)
	defer cancel()
	var stderr bytes.Buffer
	cmd := s.command(ctx, text)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s%s", text, out, stderr.String())
	return string(out)
}

// follow runs what continues until it is interrupted, once it has printed what is
// wanted.
func (s *shell) follow(t *testing.T, text, want string) {
	t.Helper()
	s.until(t, text, func(_ context.Context, said string) error {
		if !strings.Contains(said, want) {
			return fmt.Errorf("no %q", want)
		}
		return nil
	})
}

// until runs what continues until it is interrupted: with Ctrl-C, once a condition
// holds, which may look at what it has printed.
func (s *shell) until(t *testing.T, text string, holds func(ctx context.Context, said string) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), docsPatience)
	defer cancel()
	out := &logbook.Book{}
	cmd := s.command(ctx, text)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	waiting, stop := context.WithCancel(ctx)
	go func() {
		ended <- cmd.Wait()
		stop()
	}()
	err := harness.Eventually(waiting, text, func(ctx context.Context) error { return holds(ctx, out.String()) })
	require.NoError(t, err, out)
	require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
	_ = await.Receive(t, ended, "the end of "+text+" after Ctrl-C") // its exit code says more
	assert.Zero(t, cmd.ProcessState.ExitCode(), "%s\n%s", text, out)
}

// guide is the page from which a newcomer sets all parts up.
const guide = "docs/get-started/cluster.md"

// guided is the block of the guide that has a text in it, with this system's addresses, accounts
// and places instead of the examples'.
func guided(t *testing.T, has string, replace ...string) string {
	t.Helper()
	block, err := harness.ShellWith(guide, has)
	require.NoError(t, err)
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, block, replace[i])
	}
	return strings.NewReplacer(replace...).Replace(block)
}

// TestDocs_ControlPlaneGuide runs the guide: a control plane serves without a broker, makes a token
// and a Runner's credentials, and serves again with a broker.
func TestDocs_ControlPlaneGuide(t *testing.T) {
	s := newShell(t)
	require.NoError(t, os.Remove(filepath.Join(s.dir, "me.json")))
	data := filepath.Join(s.dir, "control-plane")
	const edge, listen = "--advertise-edge cp.example.com:8444", " --api-listen 127.0.0.1:0 --tunnel-listen 127.0.0.1:0 --edge-listen 127.0.0.1:0"
	s.serve(t, guided(t, "serve --data-dir ./control-plane", edge, edge+listen), data, "", func() {
		s.run(t, guided(t, "token create --data-dir ./control-plane"))
	})
	s.serve(t, guided(t, "PIPEOPS_BROKER_URL", "/var/lib/pipeops-controlplane", data,
		"amqps://USER:PASSWORD@broker.example.com:5671/", sys.Broker.URL(broker.UserControlPlane),
		edge, edge+" --broker-ca "+sys.Broker.CAFile()+listen), data, "broker:ok", func() {})
	token, err := os.ReadFile(filepath.Join(s.dir, "agent-token"))
	require.NoError(t, err)
	assert.Contains(t, string(token), "pipeops_")
	credentials, err := os.Stat(filepath.Join(s.dir, "me.json"))
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), credentials.Mode().Perm())
}

// serve runs a control plane until it is ready with a check, and meanwhile has returned.
func (s *shell) serve(t *testing.T, text, data, check string, meanwhile func()) {
	t.Helper()
	api := regexp.MustCompile(`API .* listens on (\S+)`)
	s.until(t, text, func(ctx context.Context, said string) error {
		listens := api.FindStringSubmatch(said)
		if listens == nil {
			return errors.New("it does not listen yet")
		}
		answer, err := harness.Readiness(ctx, "https://"+listens[1], filepath.Join(data, "ca.pem"))
		if err == nil && !strings.Contains(fmt.Sprint(answer), check) {
			err = fmt.Errorf("it is ready with %v", answer)
		}
		if err == nil {
			meanwhile()
		}
		return err
	})
}

// TestDocs_Guide runs what the guide has a Runner do, and what puts the agent, from this source,
// into a cluster.
func TestDocs_Guide(t *testing.T) {
	suite.Release(t, "the guide's commands against a running system, the agent's image built from source")
	removeApp(t, "web")
	s := newShell(t)
	block, err := harness.ShellWith(guide, "secret set")
	require.NoError(t, err)
	s.follow(t, block, "listening on")
	assert.Contains(t, pipeops(t, "status", agentName, "web"), "3/3")
	answer, err := sys.Kube.ServiceGet(t.Context(), namespace, "web", 8080, "/")
	require.NoError(t, err)
	assert.Contains(t, answer, "hello", "the value that was read from standard input")
	pipeops(t, "secret", "delete", agentName, "greeting")

	const image = "registry.example.com/pipeops/agent:dev"
	token, err := sys.CreateToken(t.Context())
	require.NoError(t, err)
	tokenFile := filepath.Join(t.TempDir(), "agent-token")
	require.NoError(t, os.WriteFile(tokenFile, []byte(token), 0o600))
	caches, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE", "GOMODCACHE").Output() // HOME is another there
	require.NoError(t, err)
	at := strings.Fields(string(caches))
	s.env = append(s.env, "GOCACHE="+at[0], "GOMODCACHE="+at[1])
	s.run(t, "cd "+harness.Root()+"\n"+guided(t, "sed '",
		"--push registry.example.com", "--platform linux/"+runtime.GOARCH+" --plain-http --push "+sys.Cluster.Registry(),
		"AGENT_TOKEN=agent-token", "AGENT_TOKEN="+tokenFile, "https://cp.example.com:8443", sys.APIURL()))
	s.run(t, "kubectl -n pipeops rollout status deployment/pipeops-agent --timeout 2m")
	require.NoError(t, sys.AwaitAgent(t.Context()))
	pod, err := sys.AgentPod(t.Context())
	require.NoError(t, err)
	assert.Equal(t, image, pod.Spec.Containers[0].Image)
	const doctor = "kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent doctor"
	for _, page := range []string{guide, "docs/cluster-owner/doctor.md"} {
		text, err := os.ReadFile(filepath.Join(harness.Root(), page))
		require.NoError(t, err)
		require.Contains(t, string(text), doctor)
	}
	t.Log(s.run(t, doctor))
	pipeops(t, "status", agentName, "web")
}

// TestDocs_CommandExamples runs the examples of pipeops-runner's reference, but those
// that run elsewhere.
func TestDocs_CommandExamples(t *testing.T) {
	suite.Release(t, "the documents' commands, each as it is written")
	for _, app := range []string{"web", "worker", "report"} {
		removeApp(t, app)
	}
	s := newShell(t)
	require.NoError(t, sys.Cluster.WaitMetrics(t.Context()))
	s.allow(t)
	label(t, "env=prod") // of the agents that some examples select
	t.Cleanup(func() {
		_, err := sys.ControlPlane(context.Background(), "agent", "label", agentName, "env-")
		assert.NoError(t, err)
	})
	lines, err := harness.CommandLine("")
	require.NoError(t, err)
	other := elsewhere(t)
	lines = slices.DeleteFunc(lines, func(line string) bool { return slices.Contains(other, line) })
	slices.SortStableFunc(lines, func(a, b string) int { return turn(a) - turn(b) })
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			line := s.here(t, line)
			switch {
			case listensOn.MatchString(line):
				s.follow(t, line, "goes to port 8080")
			case strings.Contains(line, "agents --watch"):
				s.follow(t, line, agentName)
			case goesOn.MatchString(line):
				if strings.Contains(line, "--since") { // the App may have said nothing for so long
					s.run(t, "pipeops-runner restart shop web")
				}
				s.follow(t, line, "web")
			case strings.HasSuffix(line, "--previous"):
				s.crashed(t, line)
			default:
				s.run(t, line)
			}
		})
	}
}

// elsewhere returns the examples that other tests run. internal/build has a builder. In
// agent.TestExamples an image has tar, the only node can be drained, the cluster may be called
// k3s, and there are fakes of the components for monitoring.
func elsewhere(t *testing.T) (all []string) {
	t.Helper()
	for _, page := range []string{"docs/deployer/git.md", "docs/deployer/builds.md"} {
		lines, err := harness.WithBuilder(page)
		require.NoError(t, err)
		all = append(all, lines...)
	}
	// A customer's CA is in the agent's tests, TestPolicy_TrustsPinnedKeys, and so is a DNS server
	// that has the record of a host: TestHostCreate, where a host is deleted, too. In
	// agent.TestExamples a fork has a request. TestLogs_FollowUntilInterrupted has a visitor to
	// follow, TestDocs_GitAndBuilds an earlier commit, and the control plane's TestExchange_Program
	// an issuer of ID tokens.
	for _, command := range []string{"cp", "node drain", "credentials --endorse", "host create", "host delete", "access-log shop web -f", "source rollback", "source approve", "source previews approve", "login --oidc"} {
		lines, err := harness.CommandLine(command)
		require.NoError(t, err)
		all = append(all, lines...)
	}
	monitored, err := harness.Monitored()
	require.NoError(t, err)
	all = append(all, monitored...)
	for _, c := range runnerapi.Calls() {
		if c.Command == "node join" {
			all = append(all, c.Example)
		}
	}
	return all
}

// TestDocs_RefusedByCluster: calls for what this cluster lacks name the reason.
func TestDocs_RefusedByCluster(t *testing.T) {
	suite.Release(t, "the documents' commands, each as it is written")
	removeApp(t, "web")
	s := newShell(t)
	s.allow(t)
	s.run(t, "pipeops-runner deploy shop web --image "+harness.ExampleImage)
	for line, why := range map[string]string{
		"pipeops-runner cp shop web:/var/log/app ./logs": "there is no tar in the image",
		"pipeops-runner node drain shop node-1":          "the agent itself runs on node",
		"pipeops-runner node join shop":                  "the cluster is not k3s",
		"pipeops-runner build run shop web -n pipeops-builds --git https://git.example.com/shop/web.git --image registry.example.com/shop/web": `the agent does not manage namespace "pipeops-builds"`,
	} {
		s.fails(t, s.here(t, line), why)
	}
}

var (
	goesOn    = regexp.MustCompile(`pipeops-runner (logs|timeline) .* -f\b`)
	listensOn = regexp.MustCompile(`pipeops-runner port-forward [^-]*$`)
)

// allow has a policy that names what no other rule allows, and the rights for it.
func (s *shell) allow(t *testing.T) {
	t.Helper()
	policyBecomes(t, "active", map[string]string{
		"policy.yaml": "rules: [{name: all, commands: ['*', adopt-app, exec-app, get-app-access-log, port-forward-app, cordon-node, uncordon-node, drain-node, apply-manifests, delete-set, get-join-token, kubernetes-api,\n" +
			"  put-release, rollback-release, delete-release, put-build, put-source, approve-preview, approve-promotion], kinds: ['*'], annotations: [greeting], kubernetes: {user: pipeops-runner, groups: [pipeops-runners]}}]",
	})
	grant(t, "node-rights.yaml")
	grant(t, "kubernetes-api-rights.yaml")
	grant(t, "sources.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "dump.sql"), []byte("SELECT 1;\n"), 0o600))
	require.NoError(t, os.MkdirAll(filepath.Join(s.dir, "site"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "pipeline.yaml"), []byte("image: "+harness.ExampleImage+
		"\njobs: [{name: test, args: [test]}, {name: migrate, args: [migrate]}]\n"), 0o600))
}

// grant applies a manifest of rights that the agent does not have by itself; they go with
// the test.
func grant(t *testing.T, manifest string) {
	t.Helper()
	rights := filepath.Join(harness.Root(), "deployments", manifest)
	_, err := sys.Cluster.Kubectl(t.Context(), "apply", "--server-side", "-f", rights)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Cluster.Kubectl(ctx, "delete", "--ignore-not-found", "-f", rights)
		assert.NoError(t, err)
	})
}

// here is an example with what there is here: the image has one program, and no database.
func (s *shell) here(t *testing.T, line string) string {
	t.Helper()
	if strings.Contains(line, " node-1") {
		name, err := sys.Cluster.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[0].metadata.name}")
		require.NoError(t, err)
		line = strings.Replace(line, " node-1", " "+strings.TrimSpace(string(name)), 1)
	}
	return strings.NewReplacer(
		"-- env", "-- /hello -get http://127.0.0.1:8080/", "-it -- sh", "-i -- /hello -cat </dev/null", "-- psql", "-- /hello -cat",
		"forward shop web 8080", "forward shop web :8080", "forward shop db 15432:5432", "forward shop web "+strings.TrimPrefix(freeport.Address(t), "127.0.0.1:")+":8080",
	).Replace(line)
}

// fails runs a line that is refused, for that reason.
func (s *shell) fails(t *testing.T, line, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), docsPatience)
	defer cancel()
	out, err := s.command(ctx, line).CombinedOutput()
	require.Error(t, err, "%s\n%s", line, out)
	assert.Contains(t, string(out), why)
}

// turn puts examples into an order in which each finds what it is about.
func turn(line string) int {
	switch {
	case strings.Contains(line, "-runner login "):
		return 0
	case strings.Contains(line, " source set "):
		return 4
	}
	for i, part := range []string{" namespace create ", " set shop ", " deploy shop ", " run shop ", " source set ", " kubeconfig shop --kubeconfig shop.kubeconfig"} {
		if strings.Contains(line, part) {
			return i
		}
	}
	switch {
	case strings.Contains(line, " webhook delete shop "): // deleting the source deletes it, too
		return 7
	case strings.Contains(line, " delete shop "), strings.Contains(line, " context delete "):
		return 8
	case strings.HasSuffix(line, "--previous"): // breaks the App, so that there is a previous run
		return 7
	}
	return 6
}

// crashed runs a line that is about the run before the last restart, with an App
// that has one.
func (s *shell) crashed(t *testing.T, line string) {
	t.Helper()
	s.run(t, "pipeops-runner deploy shop web --no-wait --image "+harness.ExampleImage+" -- -crash-after 100ms")
	ctx, cancel := context.WithTimeout(t.Context(), docsPatience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, line, func(ctx context.Context) error {
		out, err := s.command(ctx, line).Output()
		if err == nil && !strings.Contains(string(out), "crashing on purpose") {
			err = fmt.Errorf("it printed %q", out)
		}
		return err
	}))
}

func label(t *testing.T, labels ...string) {
	t.Helper()
	_, err := sys.ControlPlane(t.Context(), append([]string{"agent", "label", agentName}, labels...)...)
	require.NoError(t, err)
}
