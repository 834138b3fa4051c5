package operatorapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// TestInstallLines_Version: a published version installs the agent of that version.
func TestInstallLines_Version(t *testing.T) {
	token := operatorapi.NewToken{Text: "pipeops_a_b", Address: "cp.example.com:8443"}
	ways := token.InstallLines("shop", "v1.2.3")
	assert.Contains(t, ways[1].Text, "helm install pipeops-agent https://github.com/pipeops/pipeops-vm-agent/releases/download/v1.2.3/pipeops-agent-1.2.3.tgz --namespace pipeops")
	assert.Contains(t, ways[1].Text, "agent.controlPlaneUrl=https://cp.example.com:8443 ")
	assert.Contains(t, ways[2].Text, "kubectl apply -f https://github.com/pipeops/pipeops-vm-agent/releases/download/v1.2.3/agent.yaml\n")
	public := operatorapi.NewToken{Text: "pipeops_a@cp.example.com", Token: store.Token{Kubernetes: &store.Kubernetes{Audience: "https://a,b"}}}
	ways = public.InstallLines("shop", "dev")
	require.Len(t, ways, 1, "the installer makes a cluster, which has no keys yet")
	assert.Contains(t, ways[0].Text, "--set agent.token=pipeops_a@cp.example.com ")
	assert.Contains(t, ways[0].Text, `--set serviceAccountToken.enabled=true --set-string 'serviceAccountToken.audience=https://a\,b'`)
	assert.Contains(t, token.InstallLines("shop", "dev")[1].Text, "helm install pipeops-agent deployments/helm/pipeops-agent ")
}
