package e2e

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// Exit codes of pipeops-runner, as its help lists them.
const (
	exitFailure  = 1
	exitFailed   = 3
	exitNotFound = 4
	exitRefused  = 7
)

// pipeops runs pipeops-runner in the tests' namespace and wants success.
func pipeops(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sys.Runner(t.Context(), runner, args...)
	require.NoError(t, err)
	return out
}

// refused runs pipeops-runner and wants an exit code; it answers what was said.
func refused(t *testing.T, code int, args ...string) string {
	t.Helper()
	_, err := sys.Runner(t.Context(), runner, args...)
	var exit *harness.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, code, exit.Code, exit.Stderr)
	return exit.Stderr
}

func deployment(t *testing.T, name string) *appsv1.Deployment {
	t.Helper()
	d, err := sys.Kube.Clientset.AppsV1().Deployments(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return d
}

func removeApp(t *testing.T, name string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := sys.Runner(ctx, runner, "delete", agentName, name)
		var exit *harness.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Code != exitNotFound) {
			t.Error(err)
		}
	})
}

func TestAppsLife(t *testing.T) {
	removeApp(t, "life")
	pipeops(t, "secret", "set", agentName, "life", "--from-literal", "GREETING=it lives")
	pipeops(t, "deploy", agentName, "life", "--image", image, "--port", "8080", "--env-from", "life",
		"--probe-path", "/healthz", "--wait=2m")

	answer, err := sys.Kube.ServiceGet(t.Context(), namespace, "life", 8080, "/")
	require.NoError(t, err)
	assert.Contains(t, answer, "it lives")
	assert.Contains(t, pipeops(t, "logs", agentName, "life", "--tail", "50"), `GET "/"`)

	pipeops(t, "scale", agentName, "life", "--replicas", "3", "--wait=2m")
	assert.EqualValues(t, 3, deployment(t, "life").Status.ReadyReplicas)
	assert.Regexp(t, `Healthy`, pipeops(t, "status", agentName, "life"))

	before := deployment(t, "life").Generation
	pipeops(t, "restart", agentName, "life", "--wait=2m")
	assert.Equal(t, before+1, deployment(t, "life").Generation)

	pipeops(t, "delete", agentName, "life")
	assert.Contains(t, refused(t, exitNotFound, "status", agentName, "life"), "life")
	pipeops(t, "secret", "delete", agentName, "life")
}

func TestABadImageSaysWhatIsWrongAndTheFix(t *testing.T) {
	removeApp(t, "typo")
	start := time.Now()
	said := refused(t, exitFailed, "deploy", agentName, "typo", "--image", "registry.invalid/shop/web:no-such-tag", "--wait=1m")
	t.Logf("said after %s:\n%s", time.Since(start).Round(time.Millisecond), said)
	assert.Contains(t, said, "registry.invalid/shop/web:no-such-tag")
	assert.Contains(t, strings.ToLower(said), "fix")
	out, err := sys.AwaitTimeline(t.Context(), agentName, "app.failed")
	require.NoError(t, err)
	assert.Contains(t, out, "typo")
}

func TestSecretValuesStayInTheCluster(t *testing.T) {
	const canary = "canary-7f1c9a"
	pipeops(t, "secret", "set", agentName, "canary", "--from-literal", "KEY="+canary)
	for _, format := range []string{"table", "json", "yaml"} {
		assert.NotContains(t, pipeops(t, "secret", "get", agentName, "canary", "-o", format), canary)
	}
	assert.NotContains(t, sys.AgentLog(t.Context(), 5000), canary)
	pipeops(t, "secret", "delete", agentName, "canary")
}

func TestDryRunChangesNothing(t *testing.T) {
	pipeops(t, "deploy", agentName, "dry", "--image", image, "--dry-run")
	_ = refused(t, exitNotFound, "status", agentName, "dry")
}

func TestNamespacesThatAreNotTheAgentsAreLeftAlone(t *testing.T) {
	said := refused(t, exitRefused, "deploy", agentName, "intruder", "-n", "kube-system", "--image", image)
	assert.Contains(t, said, "kube-system")
}
