package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestDocs_JoinWithoutSecret does what docs/reference/identities.md says, after the agent has lost
// its identity: it registers by the token that the kubelet mounts, and keeps its ID.
func TestDocs_JoinWithoutSecret(t *testing.T) {
	suite.Release(t, "a second registration of the agent")
	s := newShell(t)
	s.env = append(s.env, "PIPEOPS_DATA_DIR="+sys.DataDir())
	block, err := harness.ShellWith("docs/reference/identities.md", "--kubernetes-jwks jwks.json")
	require.NoError(t, err)
	token := strings.TrimSpace(s.run(t, block))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "agent-token"), []byte(token), 0o600))
	patch, err := os.ReadFile(filepath.Join(harness.Root(), "deployments", "service-account-token.yaml"))
	require.NoError(t, err)
	text := strings.Replace(string(patch), "audience: https://control.example.com:8443", "audience: "+sys.APIURL(), 1)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "service-account-token.yaml"), []byte(text), 0o600))
	id := strings.TrimPrefix(token[:24], "pipeops_")
	agentID := func() string { return s.run(t, "pipeops-controlplane agent get shop -o 'jsonpath={.id}'") }
	before := agentID()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		out, err := s.command(ctx, `kubectl -n pipeops patch secret pipeops-agent --type=merge -p '{"data":{"AGENT_TOKEN":null}}'
kubectl -n pipeops rollout undo deployment/pipeops-agent
kubectl -n pipeops rollout status deployment/pipeops-agent --timeout 3m`).CombinedOutput()
		assert.NoError(t, err, "%s", out)
	})
	s.run(t, `kubectl -n pipeops create secret generic pipeops-agent --from-file AGENT_TOKEN=agent-token --dry-run=client -o yaml | kubectl apply -f -
kubectl -n pipeops scale deployment/pipeops-agent --replicas 0
kubectl -n pipeops wait pod -l app.kubernetes.io/name=pipeops-agent --for=delete --timeout 3m
kubectl -n pipeops delete secret pipeops-agent-identity # which a running agent would write again when it renews
kubectl -n pipeops patch deployment pipeops-agent --patch-file service-account-token.yaml
kubectl -n pipeops scale deployment/pipeops-agent --replicas 1
kubectl -n pipeops rollout status deployment/pipeops-agent --timeout 3m`)
	await.Until(t, "the agent has used the token", func() bool {
		for line := range strings.Lines(s.run(t, "pipeops-controlplane token list")) {
			if strings.HasPrefix(line, id) && strings.Contains(line, "("+before+")") {
				return true
			}
		}
		return false
	})
	require.NoError(t, sys.AwaitAgent(t.Context()))
	assert.Equal(t, before, agentID())
	kept := s.run(t, `kubectl -n pipeops get secret pipeops-agent -o 'jsonpath={.data.AGENT_TOKEN}' | base64 -d`)
	assert.Equal(t, token, kept, "a token without a secret stays")
}
