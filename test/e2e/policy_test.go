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
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	require.NoError(t, sys.AwaitPolicy(t.Context(), runner, agentName, state))
}

// TestDocs_PolicyAndAudit does what docs/cluster-owner/policy.md and audit.md
// tell the owner of the cluster to do. An App serves while all commands are paused.
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
	removeApp(t, "steady")
	pipeops(t, "deploy", agentName, "steady", "--image", image, "--port", "8080", "--wait=2m")
	document("docs/cluster-owner/policy.md", "create configmap pipeops-policy --from-file")
	require.NoError(t, sys.AwaitPolicy(t.Context(), runner, agentName, "active"))
	assert.Contains(t, document("docs/cluster-owner/policy.md", "policy check deploy"), `allowed by rule "shop": Runner ci may do scale-app`)
	document("docs/cluster-owner/policy.md", "patch configmap")
	require.NoError(t, sys.AwaitPolicy(t.Context(), runner, agentName, "paused"))
	assert.Contains(t, refused(t, exitRefused, "restart", agentName, "steady", "--no-wait"), "paused all commands")
	_, err = sys.Kube.ServiceGet(t.Context(), namespace, "steady", 8080, "/")
	require.NoError(t, err, "the App runs on")
	policyBecomes(t, "default", nil)
	document("docs/cluster-owner/policy.md", "create configmap pipeops-policy --from-literal paused=true")
	require.NoError(t, sys.AwaitPolicy(t.Context(), runner, agentName, "paused"))
	policyBecomes(t, "default", nil)

	assert.Contains(t, document("docs/cluster-owner/audit.md", "pipeops-runner audit"), "HEAD ")
	assert.Contains(t, document("docs/cluster-owner/audit.md", "audit verify\n"), "records, from 1;")
	assert.Contains(t, document("docs/cluster-owner/audit.md", "--head"), "records, from 1;")
}
