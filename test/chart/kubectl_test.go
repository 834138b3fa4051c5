package chart

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// byKubectl has the commands for an agent that came by `kubectl apply`.
const byKubectl = "docs/get-started/cluster.md"

// TestKubectl_Uninstall removes an agent that came by `kubectl apply`, with an App, as documented:
// the App before it, and after it.
func TestKubectl_Uninstall(t *testing.T) {
	suite.Release(t, "the end of an agent that came by kubectl")
	sys := system(t)
	blocks, err := harness.Named(byKubectl, "sh")
	require.NoError(t, err)
	for _, first := range []bool{true, false} {
		token, err := sys.CreateToken(t.Context())
		require.NoError(t, err)
		require.NoError(t, sys.DeployAgent(t.Context(), clusterName, token))
		awaitAgent(t, clusterName, "")
		image, err := sys.LoadApp(t.Context(), "hello")
		require.NoError(t, err)
		pipeops(t, "namespace", "create", clusterName, "shop")
		pipeops(t, "deploy", clusterName, "web", "-n", "shop", "--image", image, "--port", "8080")
		if first {
			shell(t, blocks["uninstall"])
		} else {
			shell(t, "kubectl delete -f deployments/agent.yaml --wait=false")
			eventually(t, "the agent is gone", func(ctx context.Context) error {
				out, err := runShell(ctx, "kubectl get namespace pipeops --ignore-not-found -o name")
				if err == nil && strings.TrimSpace(out) != "" {
					err = errors.New(out)
				}
				return err
			})
			assert.Contains(t, shell(t, `kubectl get crd apps.pipeops.io -o jsonpath='{.status.conditions[?(@.type=="Terminating")]}'`), `"status":"True"`, "the definition waits for the App, and says so")
			shell(t, blocks["free"])
			shell(t, "kubectl wait --for delete crd apps.pipeops.io --timeout 60s")
		}
		eventually(t, "Kubernetes has deleted what the App made", func(ctx context.Context) error {
			out, err := runShell(ctx, "kubectl -n shop get deployments,pods,services -l pipeops.io/app=web -o name")
			if err == nil && strings.TrimSpace(out) != "" {
				err = errors.New(out)
			}
			return err
		})
		shell(t, "kubectl delete namespace shop production")
		_, err = sys.ControlPlane(t.Context(), "agent", "revoke", clusterName)
		require.NoError(t, err)
		_, err = sys.ControlPlane(t.Context(), "agent", "delete", clusterName)
		require.NoError(t, err)
	}
}
