package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// disruptions are what breaks in the middle of the Runner's work. Each answers
// what makes it whole again.
var disruptions = []struct {
	name   string
	breaks func(context.Context) (heal func(context.Context) error, err error)
}{
	{"agent pod killed", func(ctx context.Context) (func(context.Context) error, error) {
		return sys.AwaitAgent, sys.KillAgent(ctx)
	}},
	{"control plane killed", func(context.Context) (func(context.Context) error, error) {
		return sys.RestartControlPlane, sys.KillControlPlane()
	}},
	{"broker killed", func(ctx context.Context) (func(context.Context) error, error) {
		return sys.Broker.Start, sys.KillBroker(ctx)
	}},
	{"agent cut off", func(ctx context.Context) (func(context.Context) error, error) {
		heal, err := sys.CutAgent(ctx)
		return func(context.Context) error { return heal() }, err
	}},
}

// TestDisruption_WorkSurvives breaks one part in the middle of the Runner's
// work: a secret, a deploy that waits, a scale. Once the part is back the work
// ends in the right state, every command was applied once, and the Runner has
// heard everything.
func TestDisruption_WorkSurvives(t *testing.T) {
	suite.Release(t, "further disruptions")
	for i, d := range disruptions {
		t.Run(d.name, func(t *testing.T) {
			name := fmt.Sprintf("survivor-%d", i)
			removeApp(t, name)
			heard := listen(t)

			end := meanwhile(t, "the Runner's work", func(ctx context.Context) error { return work(ctx, name) })
			awaitDeployment(t, name)

			heal, err := d.breaks(t.Context())
			require.NoError(t, err)
			awaitBroken(t, d.name)
			require.NoError(t, heal(t.Context()))

			end()
			require.NoError(t, sys.AwaitControlPlane(t.Context()))
			got := deployment(t, name)
			assert.EqualValues(t, 3, got.Status.ReadyReplicas)
			assert.LessOrEqual(t, got.Generation, int64(2), "one deploy, one scale")
			assert.Len(t, replicaSets(t, name), 1, "one version was rolled out, once")
			heard.awaitHealthy(t, name)
			heard.assertNoGaps(t)
		})
	}
}

// work is what the Runner does while something breaks.
func work(ctx context.Context, name string) error {
	for _, args := range [][]string{
		{"secret", "set", agentName, name, "--from-literal", "GREETING=hi"},
		{"deploy", agentName, name, "--image", image, "--port", "8080", "--env-from", name, "--probe-path", "/healthz", "--wait=3m"},
		{"scale", agentName, name, "--replicas", "3", "--wait=3m"},
		{"secret", "delete", agentName, name},
	} {
		if _, err := sys.Runner(ctx, runner, args...); err != nil {
			return err
		}
	}
	return nil
}

// awaitDeployment waits until the deploy has reached the cluster.
func awaitDeployment(t *testing.T, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the deploy has reached the cluster", func(ctx context.Context) error {
		_, err := sys.Kube.Clientset.AppsV1().Deployments(namespace).Get(ctx, name, metav1.GetOptions{})
		return err
	}))
}

// awaitBroken waits until the control plane has noticed that the agent is cut
// off, so that what is healed was broken. The other disruptions are immediate.
func awaitBroken(t *testing.T, disruption string) {
	t.Helper()
	if disruption != "agent cut off" {
		return
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the agent is noticed to be offline", func(ctx context.Context) error {
		out, err := sys.ControlPlane(ctx, "agent", "get", agentName, "-o", "json")
		if err != nil {
			return err
		}
		return state(out, "offline")
	}))
}

func replicaSets(t *testing.T, app string) []appsv1.ReplicaSet {
	t.Helper()
	list, err := sys.Kube.Clientset.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "pipeops.io/app=" + app})
	require.NoError(t, err)
	return list.Items
}
