package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestToken_Replaced gives an agent another token by the commands of docs/operator/enrolment.md.
// The agent has an identity: it continues unchanged, and removes the token.
func TestToken_Replaced(t *testing.T) {
	suite.Release(t, "an agent is given another token, end to end")
	s := newShell(t)
	s.env = append(s.env, "PIPEOPS_DATA_DIR="+sys.DataDir())
	before := awaitListed(t, "the agent is listed", agentName, func(l listed) bool { return l.ID != "" })
	block, err := harness.ShellWith("docs/operator/enrolment.md", "create secret generic pipeops-agent")
	require.NoError(t, err)
	s.run(t, block+"kubectl -n pipeops rollout status deployment/pipeops-agent --timeout=2m\n")
	require.NoError(t, sys.AwaitAgent(t.Context()))
	await.Until(t, "the agent removes the token", func() bool {
		secret, err := sys.Kube.Clientset.CoreV1().Secrets("pipeops").Get(t.Context(), "pipeops-agent", metav1.GetOptions{})
		require.NoError(t, err)
		return len(secret.Data["AGENT_TOKEN"]) == 0
	})
	after := awaitListed(t, "the agent is listed", agentName, func(l listed) bool { return l.State == "online" })
	assert.Equal(t, before.ID, after.ID)
}

// listed is an agent in the operator's list.
type listed struct {
	ID, Name, State string
}

// awaitListed waits until the operator sees an agent as it should be.
func awaitListed(t *testing.T, what, name string, ok func(listed) bool) (found listed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
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
