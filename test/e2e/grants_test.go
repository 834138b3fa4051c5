package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/contract/checked"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// grantedRunner makes a Runner for the agents with those labels.
func grantedRunner(t *testing.T, name, agents string) {
	t.Helper()
	_, err := sys.ControlPlane(t.Context(), "runner", "create", name, "-o", sys.RunnerCredentials(name), "--agents", agents)
	require.NoError(t, err)
}

func label(t *testing.T, labels ...string) {
	t.Helper()
	_, err := sys.ControlPlane(t.Context(), append([]string{"agent", "label", agentName}, labels...)...)
	require.NoError(t, err)
}

// followAs starts to follow the log of an App as a Runner, and waits for its first
// line.
func followAs(t *testing.T, runner, app string) *harness.Stream {
	t.Helper()
	stream, err := sys.Stream(runner, "logs", agentName, app, "-f")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stream.Close()) })
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err = stream.Await(ctx, func(string) bool { return true })
	require.NoError(t, err)
	return stream
}

// ends wants a stream to end after a command, which it runs.
func ends(t *testing.T, what string, stream *harness.Stream, command func()) {
	t.Helper()
	began := time.Now()
	command()
	said := time.Since(began)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err := stream.Await(ctx, func(string) bool { return false })
	require.ErrorContains(t, err, "ended", what)
	t.Logf("%s: the command took %s, the stream ended %s after its begin", what, said.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
}

// direct is a client of the agent that has not asked the control plane whether the
// Runner may see it.
func direct(t *testing.T, runner string) (c *client.Client, agentID string) {
	t.Helper()
	out, err := sys.ControlPlane(t.Context(), "agent", "get", agentName, "-o", "json")
	require.NoError(t, err)
	_, after, _ := strings.Cut(out, `"id": "`)
	agentID, _, _ = strings.Cut(after, `"`)
	require.NotEmpty(t, agentID, out)
	creds, err := credentials.Load(sys.RunnerCredentials(runner))
	require.NoError(t, err)
	cert, err := creds.TLSCertificate()
	require.NoError(t, err)
	roots, err := creds.Roots()
	require.NoError(t, err)
	c, err = client.New(client.Config{
		AgentID: agentID, ServerName: agentID + "." + creds.AgentsDomain, EdgeAddresses: []string{creds.Edge},
		TrustDomain: creds.TrustDomain, Roots: roots, Certificate: func() (*tls.Certificate, error) { return &cert, nil },
		Around: checked.Around(t),
	})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, agentID
}

// runDocumented runs the commands of docs/operator/runners.md that are for the control plane.
func runDocumented(t *testing.T) {
	t.Helper()
	blocks, err := harness.Shell("docs/operator/runners.md")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(blocks), 2)
	for _, block := range blocks[:2] {
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", block)
		cmd.Dir = t.TempDir()
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(sys.Binaries.ControlPlane)+":"+os.Getenv("PATH"), "PIPEOPS_DATA_DIR="+sys.DataDir())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", block, out)
	}
}

func TestGrants_LimitRunners(t *testing.T) {
	suite.Release(t, "Runners and their grants, end to end")
	runDocumented(t) // which labels the agent env=prod
	t.Cleanup(func() {
		_, err := sys.ControlPlane(context.Background(), "agent", "label", agentName, "env-")
		assert.NoError(t, err)
	})
	follow(t, "granted")("/first-line") // as the Runner of all tests
	grantedRunner(t, "g-prod", "env=prod")
	grantedRunner(t, "g-test", "env=test")
	grantedRunner(t, "g-all", "")

	t.Run("an agent that is not granted is not listed, and lets nobody in", func(t *testing.T) {
		out, err := sys.Runner(t.Context(), "g-test", "agents", "-o", "json")
		require.NoError(t, err)
		assert.NotContains(t, out, agentName)
		out, err = sys.Runner(t.Context(), "g-prod", "agents", "-o", "json")
		require.NoError(t, err)
		assert.Contains(t, out, agentName)
		c, id := direct(t, "g-test")
		_, err = c.Cluster().Get(t.Context())
		require.ErrorContains(t, err, fmt.Sprintf("agent %s refuses Runner g-test: not granted (its certificate is for agents with env=test)", id))
	})
	t.Run("a revoked Runner's stream ends", func(t *testing.T) {
		stream := followAs(t, "g-all", "granted")
		ends(t, "runner revoke", stream, func() {
			_, err := sys.ControlPlane(t.Context(), "runner", "revoke", "g-all")
			require.NoError(t, err)
		})
		c, id := direct(t, "g-all")
		_, err := c.Cluster().Get(t.Context())
		require.ErrorContains(t, err, fmt.Sprintf("agent %s refuses Runner g-all", id))
	})
	t.Run("other labels end the stream of who may not see them", func(t *testing.T) {
		stream := followAs(t, "g-prod", "granted")
		ends(t, "agent label", stream, func() { label(t, "env=test") })
		_, err := sys.Runner(t.Context(), "g-test", "cluster", agentName)
		require.NoError(t, err)
	})
	t.Run("refusals are in the audit log", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		require.NoError(t, harness.Eventually(ctx, "the refusals are audited", func(ctx context.Context) error {
			out, err := sys.Runner(ctx, runner, "audit", agentName)
			for _, code := range []string{"runner_not_granted", "runner_revoked"} {
				if err == nil && !strings.Contains(out, code) {
					err = fmt.Errorf("no %s in:\n%s", code, out)
				}
			}
			return err
		}))
	})
}
