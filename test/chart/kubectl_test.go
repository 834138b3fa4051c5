package chart

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// byKubectl has the commands for an agent that came by `kubectl apply`.
const byKubectl = "docs/get-started/cluster.md"

// TestKubectl_Uninstall removes an agent that came by `kubectl apply`, with an App, as documented:
// by one command, which ends.
func TestKubectl_Uninstall(t *testing.T) {
	suite.Release(t, "the end of an agent that came by kubectl")
	sys := system(t)
	blocks, err := harness.Named(byKubectl, "sh")
	require.NoError(t, err)
	token, err := sys.CreateToken(t.Context())
	require.NoError(t, err)
	require.NoError(t, sys.DeployAgent(t.Context(), clusterName, token))
	awaitAgent(t, clusterName, "")
	image, err := sys.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	pipeops(t, "namespace", "create", clusterName, "shop")
	pipeops(t, "deploy", clusterName, "web", "-n", "shop", "--image", image, "--port", "8080")
	began := time.Now()
	shell(t, blocks["uninstall"])
	assert.Less(t, time.Since(began), time.Minute)
	assert.Empty(t, strings.TrimSpace(shell(t, "kubectl get crd apps.pipeops.io --ignore-not-found -o name")))
	eventually(t, "Kubernetes has deleted what the App made", func(ctx context.Context) error {
		const made = "deployments,replicasets,pods,services,controllerrevisions"
		out, err := runShell(ctx, "kubectl -n shop get "+made+" -l pipeops.io/app=web -o name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = errors.New(out)
		}
		return err
	})
	shell(t, "kubectl delete namespace shop production")
	for _, verb := range []string{"revoke", "delete"} {
		_, err = sys.ControlPlane(t.Context(), "agent", verb, clusterName)
		require.NoError(t, err)
	}
}
