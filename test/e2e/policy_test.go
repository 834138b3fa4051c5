package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// setPolicy is what the owner of the cluster does; without data the policy goes.
func setPolicy(ctx context.Context, data map[string]string) error {
	maps := sys.Kube.Clientset.CoreV1().ConfigMaps("pipeops")
	if err := maps.Delete(ctx, "pipeops-policy", metav1.DeleteOptions{}); client.IgnoreNotFound(err) != nil || data == nil {
		return client.IgnoreNotFound(err)
	}
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "pipeops-policy"}, Data: data}, metav1.CreateOptions{})
	return err
}

// policyBecomes sets the policy and waits until it holds; it goes with the test.
func policyBecomes(t *testing.T, state string, data map[string]string) {
	t.Helper()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		assert.NoError(t, setPolicy(ctx, nil))
	})
	require.NoError(t, setPolicy(t.Context(), data))
	awaitPolicy(t, state)
}

// awaitPolicy waits until the agent tells that the policy holds.
func awaitPolicy(t *testing.T, state string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the policy is "+state, func(ctx context.Context) error {
		out, err := sys.Runner(ctx, runner, "cluster", agentName, "-o", "json")
		if err == nil && !strings.Contains(out, fmt.Sprintf(`"state": %q`, state)) {
			err = fmt.Errorf("cluster: %s", out)
		}
		return err
	}))
}

// repository is where an image comes from, as a policy names it.
func repository(image string) string {
	name, _, _ := strings.Cut(image, ":")
	if host, _, _ := strings.Cut(name, "/"); !strings.Contains(host, ".") {
		return "docker.io/" + name
	}
	return name
}

// TestPolicy_OfCustomer has the owner of the cluster bound a Runner, stop it,
// and let it go on, while the agent runs as it is and an App serves.
func TestPolicy_OfCustomer(t *testing.T) {
	suite.Release(t, "the customer's policy, end to end")
	removeApp(t, "bounded")
	pods, err := sys.AgentPods(t.Context())
	require.NoError(t, err)
	policyBecomes(t, "active", map[string]string{"policy.yaml": "rules:\n- name: ours alone\n  namespaces: [" + namespace + "]\n  images: [" +
		repository(image) + "]\n  maxReplicas: 2\n- name: look\n  commands: [read]\n"})

	pipeops(t, "deploy", agentName, "bounded", "--image", image, "--port", "8080", "--env", "A="+secretMark, "--wait=2m")
	pipeops(t, "secret", "set", agentName, "bounded", "--from-literal", "A="+secretMark)
	said := refused(t, exitRefused, "deploy", agentName, "bounded", "--image", "registry.invalid/evil:1", "--no-wait")
	assert.Contains(t, said, `rule "ours alone"`)
	assert.Contains(t, said, "not from registry.invalid/evil")
	assert.Contains(t, said, "ConfigMap pipeops/pipeops-policy")
	said = refused(t, exitRefused, "scale", agentName, "bounded", "--replicas", "3", "--no-wait")
	assert.Contains(t, said, "at most 2 pods")
	said = refused(t, exitRefused, "namespace", "create", agentName, "elsewhere")
	assert.Contains(t, said, "no rule")

	policyBecomes(t, "paused", map[string]string{"paused": "true"})
	for _, args := range [][]string{
		{"restart", agentName, "bounded", "--no-wait"}, {"delete", agentName, "bounded"}, {"status", agentName, "bounded"},
		{"secret", "set", agentName, "bounded", "--from-literal", "A=b"},
	} {
		assert.Contains(t, refused(t, exitRefused, args...), "paused all commands", args[0])
	}
	answer, err := sys.Kube.ServiceGet(t.Context(), namespace, "bounded", 8080, "/")
	require.NoError(t, err, "the App runs on")
	assert.NotEmpty(t, answer)

	policyBecomes(t, "invalid", map[string]string{"policy.yaml": "rules:\n- name: a\n  comands: [read]\n"})
	assert.Contains(t, refused(t, exitRefused, "status", agentName, "bounded"), "rules[0].comands")

	policyBecomes(t, "default", nil)
	pipeops(t, "scale", agentName, "bounded", "--replicas", "3", "--wait=2m")
	now, err := sys.AgentPods(t.Context())
	require.NoError(t, err)
	require.Len(t, now, len(pods))
	for i := range pods {
		assert.Equal(t, pods[i].UID, now[i].UID, "no restart")
	}
	auditTellsOf(t, "put-app", "bounded", runnerapi.AuditDone, "")
	auditTellsOf(t, "put-app", "bounded", runnerapi.AuditRefused, `rule "ours alone"`)
	auditTellsOf(t, "scale-app", "bounded", runnerapi.AuditRefused, "at most 2 pods")
	auditTellsOf(t, "get-app", "bounded", runnerapi.AuditRefused, "paused")
	auditTellsOf(t, "scale-app", "bounded", runnerapi.AuditDone, "")
	auditIsWhole(t, pods[0].Name)
}

// secretMark is a value that the audit log must never hold.
const secretMark = "e2e-hunter2-mark"

// auditTellsOf looks for a record over the Runner API.
func auditTellsOf(t *testing.T, command, name string, outcome runnerapi.AuditOutcome, message string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the audit log tells of "+command, func(ctx context.Context) error {
		out, err := sys.Runner(ctx, runner, "audit", agentName, "--limit", "200", "-o", "json")
		if err != nil {
			return err
		}
		assert.NotContains(t, out, secretMark)
		var list runnerapi.AuditList
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		for _, r := range list.Items {
			if r.Command == command && r.Name == name && r.Outcome == outcome && strings.Contains(r.Message, message) && r.Runner == runner {
				return nil
			}
		}
		return fmt.Errorf("not in: %s", out)
	}))
}

// auditIsWhole verifies the log in the agent's pod, against what the control
// plane has got of it.
func auditIsWhole(t *testing.T, pod string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var head string
	require.NoError(t, harness.Eventually(ctx, "the control plane has the records", func(ctx context.Context) error {
		out, err := sys.ControlPlane(ctx, "agent", "audit", agentName, "--limit", "50")
		if err != nil || !strings.Contains(out, "HEAD ") || !strings.Contains(out, "scale-app") {
			return fmt.Errorf("%s: %w", out, err)
		}
		assert.NotContains(t, out, "BROKEN")
		assert.NotContains(t, out, secretMark)
		head = strings.TrimSpace(out[strings.LastIndex(out, "HEAD ")+5:])
		return nil
	}))
	verify := func(head string) (string, error) {
		out, err := sys.Cluster.Kubectl(t.Context(), "-n", "pipeops", "exec", pod, "--", "/pipeops-agent", "audit", "verify", "--head", head)
		return string(out), err
	}
	out, err := verify(head)
	require.NoError(t, err, out)
	assert.Contains(t, out, "records, from 1;")
	seq, hash, _ := strings.Cut(head, ":")
	out, err = verify(seq + ":" + strings.Repeat("0", len(hash)))
	require.Error(t, err, out)
	assert.Contains(t, out+err.Error(), "record "+seq+" is not the one that was noted")
}

// TestDocs_PolicyAndAudit does what docs/cluster-owner/policy.md and audit.md
// tell the owner of the cluster to do.
func TestDocs_PolicyAndAudit(t *testing.T) {
	suite.Release(t, "the documents' commands, each as it is written")
	s := newShell(t)
	s.env = append(s.env, "PIPEOPS_DATA_DIR="+sys.DataDir())
	s.run(t, "pipeops-runner secret set shop recorded --from-literal A=b") // the log has a record
	text, err := os.ReadFile(filepath.Join(harness.Root(), "docs", "cluster-owner", "policy.md"))
	require.NoError(t, err)
	_, example, _ := strings.Cut(string(text), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "policy.yaml"), []byte(example), 0o600))
	document := func(doc, has string) string {
		block, err := harness.ShellWith(doc, has)
		require.NoError(t, err)
		return s.run(t, block)
	}
	policyBecomes(t, "default", nil)
	document("docs/cluster-owner/policy.md", "create configmap pipeops-policy --from-file")
	awaitPolicy(t, "active")
	assert.Contains(t, document("docs/cluster-owner/policy.md", "policy check"), `allowed by rule "shop": Runner ci may do scale-app`)
	document("docs/cluster-owner/policy.md", "patch configmap")
	awaitPolicy(t, "paused")
	policyBecomes(t, "default", nil)
	document("docs/cluster-owner/policy.md", "create configmap pipeops-policy --from-literal")
	awaitPolicy(t, "paused")
	policyBecomes(t, "default", nil)

	assert.Contains(t, document("docs/cluster-owner/audit.md", "pipeops-runner audit"), "HEAD ")
	assert.Contains(t, document("docs/cluster-owner/audit.md", "audit verify\n"), "records, from 1;")
	assert.Contains(t, document("docs/cluster-owner/audit.md", "--head"), "records, from 1;")
}
