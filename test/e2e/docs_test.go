package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const docsPatience = 3 * time.Minute

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

// follow runs what goes on until it is interrupted: with Ctrl-C, once it has
// printed what is wanted.
func (s *shell) follow(t *testing.T, text, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), docsPatience)
	defer cancel()
	out := &seen{want: want, found: make(chan struct{})}
	cmd := s.command(ctx, text)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-out.found:
		require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGINT))
		<-ended
	case <-ended:
		t.Fatalf("%s ended without %q:\n%s", text, want, out)
	}
	assert.Zero(t, cmd.ProcessState.ExitCode(), "%s\n%s", text, out)
}

// seen takes output and tells when something is in it.
type seen struct {
	want  string
	found chan struct{}
	mu    sync.Mutex
	text  bytes.Buffer
}

func (s *seen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := bytes.Contains(s.text.Bytes(), []byte(s.want))
	s.text.Write(p)
	if !before && bytes.Contains(s.text.Bytes(), []byte(s.want)) {
		close(s.found)
	}
	return len(p), nil
}

func (s *seen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestTheReadmeRuns runs what README.md tells a Runner to do, and the line that
// puts the agent into a cluster.
func TestTheReadmeRuns(t *testing.T) {
	removeApp(t, "web")
	s := newShell(t)
	block, err := harness.ShellWith("README.md", "secret set")
	require.NoError(t, err)
	s.follow(t, block, "listening on")
	assert.Contains(t, pipeops(t, "status", agentName, "web"), "3/3")
	answer, err := sys.Kube.ServiceGet(t.Context(), namespace, "web", 8080, "/")
	require.NoError(t, err)
	assert.Contains(t, answer, "hello", "the value that was read from standard input")
	pipeops(t, "secret", "delete", agentName, "greeting")

	const image = "registry.example.com/pipeops/agent:dev"
	require.NoError(t, sys.LoadProgramAs(t.Context(), "./cmd/agent", image))
	block, err = harness.ShellWith("README.md", "sed '")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^sed '.*$`).FindString(block)
	require.Contains(t, line, "kubectl apply")
	s.run(t, "cd "+harness.Root()+" && "+line)
	s.run(t, "kubectl -n pipeops rollout status deployment/pipeops-agent --timeout 2m")
	require.NoError(t, sys.AwaitAgent(t.Context()))
	pod, err := sys.AgentPod(t.Context())
	require.NoError(t, err)
	assert.Equal(t, image, pod.Spec.Containers[0].Image)
	const doctor = "kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent doctor"
	readme, err := os.ReadFile(filepath.Join(harness.Root(), "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "`"+doctor+"`")
	t.Log(s.run(t, doctor))
	pipeops(t, "status", agentName, "web")
}

// TestTheExamplesOfTheCommandLineRun runs every example of docs/runner-cli.md.
func TestTheExamplesOfTheCommandLineRun(t *testing.T) {
	for _, app := range []string{"web", "worker", "report"} {
		removeApp(t, app)
	}
	s := newShell(t)
	require.NoError(t, sys.Cluster.WaitMetrics(t.Context()))
	blocks, err := harness.Shell("docs/runner-cli.md")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(strings.Join(blocks, "")), "\n")
	slices.SortStableFunc(lines, func(a, b string) int { return turn(a) - turn(b) })
	for _, line := range lines {
		t.Run(line, func(t *testing.T) {
			switch {
			case strings.Contains(line, "--watch"):
				s.follow(t, line, agentName)
			case goesOn.MatchString(line):
				s.follow(t, line, "web")
			case strings.HasSuffix(line, "--previous"):
				s.crashed(t, line)
			default:
				s.run(t, line)
			}
		})
	}
}

var goesOn = regexp.MustCompile(`pipeops-runner (logs|events) .* -f\b`)

// turn puts examples into an order in which each finds what it is about.
func turn(line string) int {
	for i, part := range []string{" namespace create ", " set shop ", " deploy shop "} {
		if strings.Contains(line, part) {
			return i
		}
	}
	switch {
	case strings.Contains(line, " delete shop "):
		return 5
	case strings.HasSuffix(line, "--previous"): // breaks the App, so that there is a previous run
		return 4
	}
	return 3
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
