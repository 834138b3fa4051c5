package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
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

// TestTheAgentSaysWhyItCannotRegister runs one of each: an answer of the control plane, none, and
// what the agent sees by itself. The others are told apart in the tests of
// internal/controlplane/enrolment, internal/controlapi and agent/config.
func TestTheAgentSaysWhyItCannotRegister(t *testing.T) {
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

// TestAClockThatIsWrongIsNamed runs the agent's code in this process, where its
// clock can be set.
func TestAClockThatIsWrongIsNamed(t *testing.T) {
	kube := sys.Kube.Config
	for _, off := range []time.Duration{2 * time.Hour, -2 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			env := map[string]string{
				"PIPEOPS_CONTROL_PLANE_URL": sys.APIURL(), "AGENT_TOKEN": token(t), "CLUSTER_NAME": "late",
				"PIPEOPS_STATE_DIR": filepath.Join(t.TempDir(), "state"), "PIPEOPS_HEALTH_ADDRESS": "127.0.0.1:0",
			}
			flags := pflag.NewFlagSet("agent", pflag.ContinueOnError)
			config.AddFlags(flags)
			cfg, err := config.Load(flags, func(k string) string { return env[k] })
			require.NoError(t, err)
			a, err := agent.New(agent.Options{
				Config: cfg, Version: "test", Log: zerolog.New(zerolog.NewTestWriter(t)), Kubernetes: kube,
				Now: func() time.Time { return time.Now().Add(off) },
			})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			err = a.Run(ctx)
			require.Error(t, err)
			assert.ErrorContains(t, err, "clock")
			assert.ErrorContains(t, err, "2h0m")
			assert.ErrorContains(t, err, "fix")
		})
	}
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

func TestANameThatIsTakenIsRefused(t *testing.T) {
	// The same cluster may register again; another one may not take its name.
	other, err := otherCluster()
	require.NoError(t, err)
	a, err := sys.RunAgent(map[string]string{
		"PIPEOPS_CONTROL_PLANE_URL": sys.APIURL(), "AGENT_TOKEN": token(t), "CLUSTER_NAME": agentName,
		"KUBECONFIG": other, "PIPEOPS_STATE_DIR": t.TempDir(), "PIPEOPS_HEALTH_ADDRESS": "127.0.0.1:0",
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, a.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, a.AwaitEnd(ctx))
	assert.Contains(t, a.Log(), "CLUSTER_NAME")
	assert.Contains(t, a.Log(), agentName)
}
