package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestReplicas_Two: both replicas serve, one leads, and the leader's death loses no command.
func TestReplicas_Two(t *testing.T) {
	suite.Release(t, "two replicas of the agent, of which one dies")
	require.NoError(t, sys.ScaleAgent(t.Context(), 2))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		assert.NoError(t, sys.ScaleAgent(ctx, 1))
	})
	t.Run("both serve", bothServe)
	t.Run("the leader dies in the middle of the work", leaderDiesAtWork)
	t.Run("a log is followed over the loss of each", logOutlivesEach)
	t.Run("an update of the agent costs nothing", updateCostsNothing)
}

// bothServe asks for the cluster again and again, each time over a new connection, until both
// replicas have answered.
func bothServe(t *testing.T) {
	const route = "/v1/cluster"
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	before, err := served(ctx, route)
	require.NoError(t, err)
	require.NoError(t, harness.Eventually(ctx, "both replicas have served "+route, func(ctx context.Context) error {
		if _, err := sys.Runner(ctx, runner, "cluster", agentName); err != nil {
			return err
		}
		now, err := served(ctx, route)
		if err != nil {
			return err
		}
		if len(now) != 2 {
			return fmt.Errorf("%d pods", len(now))
		}
		for pod, calls := range now {
			if calls == before[pod] {
				return fmt.Errorf("pod %s has not", pod)
			}
		}
		return nil
	}))
}

// served is how many calls of a route each of the agent's pods has logged.
func served(ctx context.Context, route string) (map[string]int, error) {
	pods, err := sys.AgentPods(ctx)
	if err != nil {
		return nil, err
	}
	calls := map[string]int{}
	for _, p := range pods {
		log, err := sys.PodLog(ctx, p.Name)
		if err != nil {
			return nil, err
		}
		calls[p.Name] = strings.Count(log, `"route":"`+route+`"`)
	}
	return calls, nil
}

// killLeader kills the replica that leads. The function that it answers waits until
// another one does.
func killLeader(t *testing.T) (awaitNext func()) {
	t.Helper()
	dead, err := sys.AgentLeader(t.Context())
	require.NoError(t, err)
	start := time.Now()
	require.NoError(t, sys.KillReplica(t.Context(), dead))
	return func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		require.NoError(t, harness.Eventually(ctx, "another replica leads", func(ctx context.Context) error {
			now, err := sys.AgentLeader(ctx)
			if err == nil && now == dead {
				err = fmt.Errorf("still %s", dead)
			}
			return err
		}))
		t.Logf("another replica leads, %s after the leader was killed at the latest", time.Since(start).Round(100*time.Millisecond))
	}
}

func leaderDiesAtWork(t *testing.T) {
	const name = "two-survive"
	removeApp(t, name)
	heard := listen(t)
	end := meanwhile(t, "the Runner's work", func(ctx context.Context) error { return work(ctx, name) })
	awaitDeployment(t, name)
	killLeader(t)()
	end()
	got := deployment(t, name)
	assert.EqualValues(t, 3, got.Status.ReadyReplicas)
	assert.LessOrEqual(t, got.Generation, int64(2), "one deploy, one scale")
	assert.Len(t, replicaSets(t, name), 1, "one version was rolled out, once")
	heard.awaitHealthy(t, name)
	heard.assertNoGaps(t)
	heard.assertNeverOffline(t)
	require.NoError(t, sys.ScaleAgent(t.Context(), 2))
}

// logOutlivesEach follows a log while the replicas are killed one after the other: one
// of them was the one that sent it.
func logOutlivesEach(t *testing.T) {
	request := follow(t, "two-followed")
	request("/before")
	pods, err := sys.AgentPods(t.Context())
	require.NoError(t, err)
	for i, p := range pods {
		require.NoError(t, sys.KillReplica(t.Context(), p.Name))
		request(fmt.Sprintf("/after-the-loss-of-%d", i))
		require.NoError(t, sys.ScaleAgent(t.Context(), 2))
	}
}

// updateCostsNothing replaces both pods, one after the other, while a Runner works.
func updateCostsNothing(t *testing.T) {
	const name = "two-updated"
	removeApp(t, name)
	heard := listen(t)
	end := meanwhile(t, "the Runner's work", func(ctx context.Context) error { return work(ctx, name) })
	require.NoError(t, sys.RolloutAgent(t.Context(), name))
	end()
	assert.EqualValues(t, 3, deployment(t, name).Status.ReadyReplicas)
	assert.Len(t, replicaSets(t, name), 1)
	heard.awaitHealthy(t, name)
	heard.assertNeverOffline(t)
}

// assertNeverOffline wants no news of the agent's end: it has replicas.
func (l *listener) assertNeverOffline(t *testing.T) {
	t.Helper()
	for _, e := range l.all() {
		assert.NotEqual(t, announce.AgentOffline, e.Type)
	}
}

// follow starts an App and follows its log. The function that it returns sends the App a request,
// and wants it in the log.
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

func replicaSets(t *testing.T, app string) []appsv1.ReplicaSet {
	t.Helper()
	list, err := sys.Kube.Clientset.AppsV1().ReplicaSets(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "pipeops.io/app=" + app})
	require.NoError(t, err)
	return list.Items
}
