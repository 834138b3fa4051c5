package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// serial is the serial number of the agent's certificate.
func serial(ctx context.Context) (string, error) {
	secret, err := sys.Kube.Clientset.CoreV1().Secrets("pipeops").Get(ctx, "pipeops-agent-identity", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	id, err := identity.Decode(secret.Data)
	if err != nil {
		return "", err
	}
	return id.Certificate.Leaf.SerialNumber.String(), nil
}

// follow starts an App and follows its log. The function that it answers sends
// the App a request and wants it in the log.
func follow(t *testing.T, app string) (request func(path string)) {
	t.Helper()
	removeApp(t, app)
	pipeops(t, "deploy", agentName, app, "--image", image, "--port", "8080", "--probe-path", "/healthz", "--wait=2m")
	stream, err := sys.Stream(runner, "logs", agentName, app, "-f")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, stream.Close()) })
	return func(path string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		_, err := sys.Kube.ServiceGet(ctx, namespace, app, 8080, path)
		if !apierrors.IsNotFound(err) { // the App has no such page, and logs that it was asked
			require.NoError(t, err)
		}
		_, err = stream.Await(ctx, func(line string) bool { return strings.Contains(line, path) })
		require.NoError(t, err)
		lines, _ := stream.Lines()
		assert.Equal(t, 1, strings.Count(strings.Join(lines, "\n"), path), "each line once")
	}
}

// TestRenew_DropsNothing follows a log over a renewal of the agent's
// certificate: the same stream goes on, and the agent does not reconnect.
func TestRenew_DropsNothing(t *testing.T) {
	suite.Release(t, "further disruptions")
	request := follow(t, "renewal")
	request("/before-the-renewal")
	before, err := serial(t.Context())
	require.NoError(t, err)
	drops := strings.Count(sys.AgentLog(t.Context(), 10000), "tunnel is down")

	ctx, cancel := context.WithTimeout(t.Context(), 2*certificateTTL)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the certificate is renewed", func(ctx context.Context) error {
		now, err := serial(ctx)
		if err == nil && now == before {
			err = fmt.Errorf("it is still %s", before)
		}
		return err
	}))
	request("/after-the-renewal")
	assert.Equal(t, drops, strings.Count(sys.AgentLog(t.Context(), 10000), "tunnel is down"), "the tunnel was not dropped")
	pipeops(t, "status", agentName, "renewal")
}

// TestLogs_FollowOverAgentDeath kills the agent under a followed log: the
// Runner takes it up again, without losing or repeating a line.
func TestLogs_FollowOverAgentDeath(t *testing.T) {
	suite.Release(t, "further disruptions")
	request := follow(t, "followed")
	request("/before-the-death")
	require.NoError(t, sys.KillAgent(t.Context()))
	require.NoError(t, sys.AwaitAgent(t.Context()))
	request("/after-the-death")
}

// TestRestart_AppliedOnce kills the agent in the middle of the one command
// that is not idempotent by its nature.
func TestRestart_AppliedOnce(t *testing.T) {
	suite.Release(t, "further disruptions")
	removeApp(t, "once")
	pipeops(t, "deploy", agentName, "once", "--image", image, "--port", "8080", "--probe-path", "/healthz", "--wait=2m")
	end := meanwhile(t, "the restart", func(ctx context.Context) error {
		_, err := sys.Runner(ctx, runner, "restart", agentName, "once", "--wait=2m")
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the restart has begun", func(context.Context) error {
		if n := len(replicaSets(t, "once")); n != 2 {
			return fmt.Errorf("%d replica sets", n)
		}
		return nil
	}))
	require.NoError(t, sys.KillAgent(t.Context()))
	end()
	assert.Len(t, replicaSets(t, "once"), 2, "one restart made one new version")
	pods, err := sys.Kube.Clientset.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "pipeops.io/app=once"})
	require.NoError(t, err)
	running := 0
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
			running++
		}
	}
	assert.Equal(t, 1, running)
	require.NoError(t, sys.AwaitAgent(t.Context()))
}
