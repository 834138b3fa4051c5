package e2e

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// addresses are those of kubectl proxy, and of a server that is given by its URL.
func (s *shell) addresses(t *testing.T) {
	s.policyIs(t, kubernetesPolicy, "kubectl delete pod nobody", "NotFound")
	serves := regexp.MustCompile(`Starting to serve on (127\.0\.0\.1:\d+)`)
	s.interrupted(t, "exec kubectl proxy --port 0", func(ctx context.Context, said string) error {
		at := serves.FindStringSubmatch(said)
		if at == nil {
			return errors.New("it does not serve yet")
		}
		out, err := exec.CommandContext(ctx, "curl", "-fsS", "--noproxy", "*", "http://"+at[1]+"/api/v1/namespaces/production/pods/tool").Output()
		if err == nil && !strings.Contains(string(out), `"name": "tool"`) {
			err = fmt.Errorf("it said %s", out)
		}
		return err
	})
	view := func(field string) string {
		return s.run(t, "kubectl config view --minify --raw -o jsonpath='{.clusters[0].cluster."+field+"}'")
	}
	name, server := view("tls-server-name"), view("server")
	assert.True(t, strings.HasPrefix(name, "kubernetes."), name)
	s.run(t, "kubectl -s "+server+" --tls-server-name "+name+" get pod tool")
	assert.Equal(t, "ok", s.run(t, "kubectl get --raw /readyz"))
	s.fails(t, "kubectl -s "+strings.Replace(server, "localhost", "127.0.0.1", 1)+" get pod tool", "unrecognized name")
}

// policyIs sets a policy, and waits until a line says something that it says under that alone.
func (s *shell) policyIs(t *testing.T, policy, line, says string) {
	t.Helper()
	policyBecomes(t, "active", map[string]string{"policy.yaml": policy})
	require.Eventually(t, func() bool {
		out, _ := s.command(t.Context(), line).CombinedOutput()
		return strings.Contains(string(out), says)
	}, 3*time.Minute, 100*time.Millisecond, "%s says %q", line, says)
}
