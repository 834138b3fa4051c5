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

const clientsPolicy = `rules:
- name: write here
  namespaces: [production]
  commands: [kubernetes-api]
  kubernetes: {user: pipeops-runner, groups: [pipeops-runners], impersonate: {users: [alice]}}
- name: look elsewhere
  commands: [kubernetes-api]
  kubernetes: {user: pipeops-runner, groups: [pipeops-runners], readOnly: true}
- name: all
`

// clients is what kubectl is told about itself, and what it sees of the agent's namespace.
func (s *shell) clients(t *testing.T) {
	owner := func(line string) {
		t.Helper()
		_, err := sys.Cluster.Kubectl(t.Context(), strings.Fields(line)...)
		require.NoError(t, err)
	}
	owner("create clusterrole as-alice --verb impersonate --resource users --resource-name alice")
	owner("create clusterrolebinding as-alice --clusterrole as-alice --serviceaccount pipeops:pipeops-agent")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Cluster.Kubectl(ctx, "delete", "--ignore-not-found", "clusterrole/as-alice", "clusterrolebinding/as-alice")
		assert.NoError(t, err)
	})
	s.policyIs(t, clientsPolicy, "kubectl auth can-i list pods -n kube-system", "yes")

	s.fails(t, "kubectl get pods --as bob", `PipeOps agent: rule "write here" of the customer's policy does not allow to impersonate user "bob"`)
	s.fails(t, "kubectl get pods --as alice --as-group system:masters", `does not allow to impersonate group "system:masters"`)
	s.fails(t, "kubectl get pods --as alice", `User "alice" cannot list resource "pods"`)
	assert.Contains(t, s.run(t, "kubectl auth whoami --as alice"), "alice")
	assert.Equal(t, "no\n", s.run(t, "kubectl auth can-i list pods --as alice || :"))

	assert.Equal(t, "yes\n", s.run(t, "kubectl auth can-i create deployments.apps"))
	assert.Equal(t, "yes\n", s.run(t, "kubectl auth can-i list pods -n kube-system"))
	assert.Contains(t, s.run(t, "kubectl auth can-i create pods -n kube-system || :"), `no - PipeOps agent: rule "look elsewhere"`)
	assert.Contains(t, s.run(t, "kubectl auth can-i get configmaps -n pipeops || :"), "agent's own namespace pipeops")
	assert.Contains(t, s.run(t, "kubectl auth can-i --list"), "deployments.apps")
	assert.NotContains(t, s.run(t, "kubectl auth can-i --list -n kube-system"), "deletecollection")

	all := s.run(t, "kubectl get pods -A -o custom-columns=NS:.metadata.namespace")
	assert.Contains(t, all, "production")
	assert.NotContains(t, all, "pipeops")
	assert.Empty(t, s.run(t, "kubectl get configmaps -A --field-selector metadata.name=pipeops-agent -o name"))
	s.fails(t, "kubectl get pods -A --field-selector metadata.namespace=pipeops", "does not name the agent's own namespace pipeops")
	s.fails(t, "kubectl get --raw /api/v1/nodes/any/proxy/pods", "which a node's kubelet leads to")
	assert.Contains(t, s.run(t, "kubectl get namespaces -o name"), "namespace/production")
}

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

// reads is what works where the policy lets a Runner read alone.
func (s *shell) reads(t *testing.T) {
	readOnly := strings.Replace(kubernetesPolicy, "groups: [pipeops-runners]", "groups: [pipeops-runners], readOnly: true", 1)
	s.policyIs(t, readOnly, "kubectl delete pod nobody", "allows reading only")
	s.write(t, "applied.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: applied}\ndata: {a: dry}\n")
	assert.Contains(t, s.run(t, "kubectl diff -f applied.yaml || test $? = 1"), "+  a: dry")
	assert.Contains(t, s.run(t, "kubectl diff --server-side --force-conflicts -f applied.yaml || test $? = 1"), "+  a: dry")
	for _, dry := range []string{"apply -f applied.yaml", "delete pod tool", "label pod tool a=b"} {
		s.run(t, "kubectl "+dry+" --dry-run=server")
		s.fails(t, "kubectl "+dry, "PipeOps agent: ")
	}
	s.fails(t, "kubectl exec tool -- /tar", "allows reading only")
	s.fails(t, "kubectl create token default", "allows reading only")
	assert.Contains(t, s.run(t, "kubectl auth can-i delete pods || :"), "no - PipeOps agent: ")
	s.run(t, "kubectl get pod tool")
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
