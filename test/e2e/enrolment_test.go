package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const enrolPatience = 5 * time.Minute

// beside is the environment of an agent that is a process, in the other cluster.
func beside(t *testing.T, token, name string) map[string]string {
	t.Helper()
	other, err := otherCluster()
	require.NoError(t, err)
	return map[string]string{
		"PIPEOPS_CONTROL_PLANE_URL": sys.APIURL(), "AGENT_TOKEN": token, "CLUSTER_NAME": name,
		"KUBECONFIG": other, "PIPEOPS_STATE_DIR": t.TempDir(), "PIPEOPS_HEALTH_ADDRESS": "127.0.0.1:0",
	}
}

func runBeside(t *testing.T, env map[string]string) *harness.RunningAgent {
	t.Helper()
	a, err := sys.RunAgent(env)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, a.Close()) })
	return a
}

// listed is an agent in the operator's list.
type listed struct {
	ID, Name, State string
	Approval        *struct{ Key string }
	Clones          []struct{ ClusterUID string }
}

// awaitListed waits until the operator sees an agent as it should be.
func awaitListed(t *testing.T, what, name string, ok func(listed) bool) (found listed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), enrolPatience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, what, func(ctx context.Context) error {
		out, err := sys.ControlPlane(ctx, "agent", "list", "-o", "json")
		if err != nil {
			return err
		}
		var list []listed
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		for _, found = range list {
			if found.Name == name && ok(found) {
				return nil
			}
		}
		return fmt.Errorf("agents: %s", out)
	}))
	return found
}

// forgetAgent lets the other cluster register anew in the next test.
func forgetAgent(t *testing.T, name string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for _, verb := range []string{"revoke", "delete"} {
		_, err := sys.ControlPlane(ctx, "agent", verb, name)
		assert.NoError(t, err)
	}
}

// TestEnrolment_Approve goes the whole way, from the token to the command of a
// Runner's that reaches the agent.
func TestEnrolment_Approve(t *testing.T) {
	a := runBeside(t, beside(t, token(t, "--approve"), "branch"))
	waits := awaitListed(t, "it waits", "branch", func(l listed) bool { return l.Approval != nil })
	assert.Equal(t, "pending", waits.State)
	ctx, cancel := context.WithTimeout(t.Context(), enrolPatience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "it says so", func(context.Context) error {
		if !strings.Contains(a.Log(), "pipeops-controlplane agent approve "+waits.ID) {
			return fmt.Errorf("it says:\n%s", a.Log())
		}
		return nil
	}))
	assert.NotContains(t, pipeops(t, "agents"), "branch", "Runners do not hear of it")
	table, err := sys.ControlPlane(t.Context(), "agent", "list")
	require.NoError(t, err)
	assert.Contains(t, table, "Waiting for approval:")

	began := time.Now()
	_, err = sys.ControlPlane(t.Context(), "agent", "approve", waits.ID)
	require.NoError(t, err)
	defer forgetAgent(t, "branch")
	online := awaitListed(t, "it is online", "branch", func(l listed) bool { return l.State == "online" })
	t.Logf("online %s after the approval", time.Since(began))
	assert.Equal(t, waits.ID, online.ID)
	assert.Contains(t, pipeops(t, "cluster", "branch"), "branch")
}

// TestEnrolment_CopiedSecret copies the identity of the tests' agent, as a
// restored backup does.
func TestEnrolment_CopiedSecret(t *testing.T) {
	secret, err := sys.Kube.Clientset.CoreV1().Secrets("pipeops").Get(t.Context(), "pipeops-agent-identity", metav1.GetOptions{})
	require.NoError(t, err)
	text, err := json.Marshal(secret.Data) // the file has the same parts
	require.NoError(t, err)
	env := beside(t, "", "copy")
	require.NoError(t, os.WriteFile(filepath.Join(env["PIPEOPS_STATE_DIR"], "identity.json"), text, 0o600))
	maps.DeleteFunc(env, func(k, _ string) bool { return k == "AGENT_TOKEN" })
	a := runBeside(t, env)
	ctx, cancel := context.WithTimeout(t.Context(), enrolPatience)
	defer cancel()
	require.NoError(t, a.AwaitEnd(ctx))
	assert.Contains(t, a.Log(), "this is the identity of agent "+agentName)
	assert.Contains(t, a.Log(), "delete the copied identity")

	shop := awaitListed(t, "the operator sees it", agentName, func(l listed) bool { return len(l.Clones) == 1 })
	assert.Equal(t, "online", shop.State)
	table, err := sys.ControlPlane(t.Context(), "agent", "list")
	require.NoError(t, err)
	assert.Contains(t, table, "Identities in use twice:")
	require.NoError(t, harness.Eventually(ctx, "it is in the timeline", func(ctx context.Context) error {
		out, err := sys.ControlPlane(ctx, "agent", "get", agentName, "--events", "50")
		if err == nil && !strings.Contains(out, "its identity is in use twice: a copy in cluster ") {
			err = fmt.Errorf("it says:\n%s", out)
		}
		return err
	}))
	assert.Contains(t, pipeops(t, "cluster", agentName), agentName, "the agent goes on")
}
