package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// token makes an enrolment token.
func token(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sys.CreateToken(t.Context(), args...)
	require.NoError(t, err)
	return out
}

// agentSays runs pipeops-agent beside the cluster until it ends or has said
// what is wanted, and answers what it said.
func agentSays(t *testing.T, url, token, name string, want ...string) string {
	t.Helper()
	a, err := sys.RunAgent(map[string]string{
		"PIPEOPS_CONTROL_PLANE_URL": url, "AGENT_TOKEN": token, "CLUSTER_NAME": name,
		"KUBECONFIG": sys.Kubeconfig(), "PIPEOPS_STATE_DIR": t.TempDir(), "PIPEOPS_HEALTH_ADDRESS": "127.0.0.1:0",
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	err = harness.Eventually(ctx, "the agent says what is wrong", func(context.Context) error {
		for _, w := range want {
			if !strings.Contains(a.Log(), w) {
				return fmt.Errorf("%q is not in:\n%s", w, a.Log())
			}
		}
		return nil
	})
	require.NoError(t, err)
	return a.Log()
}

// TestRegister_NamesReason has a refusal by the control plane, no answer, and what the agent sees
// by itself. The other reasons are in the tests of internal/controlplane/enrolment,
// internal/controlapi and agent/config.
func TestRegister_NamesReason(t *testing.T) {
	url := sys.APIURL()
	good := token(t)
	for name, c := range map[string]struct {
		url, token, cluster string
		want                []string
	}{
		"wrong token":     {url, mistyped(good), "elsewhere", []string{"pipeops-controlplane token create"}},
		"no token at all": {url, "nonsense", "elsewhere", []string{"not an enrolment token"}},
		"unreachable":     {"https://" + sys.HostIP() + ":1", good, "elsewhere", []string{"refused", "pipeops-controlplane serve"}},
	} {
		t.Run(name, func(t *testing.T) {
			said := agentSays(t, c.url, c.token, c.cluster, c.want...)
			assert.Contains(t, said, "fix")
			assert.NotContains(t, said, secretOf(c.token), "the token is not shown")
		})
	}
}

// mistyped changes a token's secret in one character.
func mistyped(token string) string {
	i := strings.LastIndex(token, "_") + 1
	c := "a"
	if token[i] == 'a' {
		c = "b"
	}
	return token[:i] + c + token[i+1:]
}

// secretOf is the part of a token that nobody may see.
func secretOf(token string) string {
	secret, _, _ := strings.Cut(token[strings.LastIndex(token, "_")+1:], ".")
	return secret
}

// otherCluster is a second one, an API server alone, of all tests that ask for it. What
// an agent needs to start is there.
var otherCluster = sync.OnceValues(func() (string, error) {
	ctx := context.Background()
	kubeconfig, err := sys.OtherCluster(ctx)
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"create", "namespace", "pipeops"},
		{"apply", "--server-side", "-f", filepath.Join(harness.Root(), "deployments", "crds")},
		{"wait", "--for=condition=Established", "crd/apps.pipeops.io", "--timeout=60s"},
	} {
		cmd := sys.Cluster.KubectlCommand(ctx, append(args, "--kubeconfig", kubeconfig)...) // the last one counts
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w: %s", cmd, err, out)
		}
	}
	return kubeconfig, nil
})
