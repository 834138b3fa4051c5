package install

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestInstall_AgentDoesNotRegister: the script waits, and names the cause from the agent's log.
func TestInstall_AgentDoesNotRegister(t *testing.T) {
	site, err := newSite("127.0.0.1") // stands in for the control plane, of which the script wants the time alone
	require.NoError(t, err)
	t.Cleanup(site.Close)
	const running = "deployment 1 1 1 1 0 1 1\nreplicaset abc 1\npod pipeops-agent-abc-x abc Running 0 -\n"
	for name, c := range map[string]struct {
		logs, fails string
		code        int
		says        []string
	}{
		"it waits for an operator": {
			logs: `{"code":"approval_pending","error":"fix: pipeops-controlplane agent approve k3v7q2m7"}`, code: 9,
			says: []string{"waiting for approval: on the control plane, pipeops-controlplane agent approve k3v7q2m7", "PO-4010", "the agent continues by itself"},
		},
		"an operator denied it": {
			logs: `{"code":"enrolment_denied"}`, code: 9,
			says: []string{"denied by the operator", "PO-4011", "ask the operator"},
		},
		"its pods have no way out": {
			logs: `{"error":"dial tcp 192.0.2.1:8443: i/o timeout"}`, code: 9,
			says: []string{"pods do not reach the control plane", "PO-9303", "open the firewall"},
		},
		"an unknown CA": {
			logs: `{"error":"tls: failed to verify certificate: x509: certificate signed by unknown authority"}`, code: 9,
			says: []string{"the control plane's certificate is not trusted", "PO-4015", "PIPEOPS_CA_FILE"},
		},
		"objects that the cluster refuses": {
			fails: "apply", code: 7,
			says: []string{"the cluster refused the agent's objects", "Unable to connect to the server: FAKE", "PO-9204"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newExistingCluster(t, map[string]string{
				"agent": running, "logs": c.logs, "fails": c.fails, "agent.yaml": "kind: Namespace\n", "state/installed": "",
			})
			said, code := cluster.with(
				"PATH="+cluster.dir+":"+os.Getenv("PATH"), "PIPEOPS_MANIFEST="+filepath.Join(cluster.dir, "agent.yaml"),
				"PIPEOPS_CONTROL_PLANE_URL="+site.URL, "AGENT_TOKEN="+unusedToken, "CLUSTER_NAME=prod-1",
			).script(t, "install", "--context", "fake", "--yes")
			assert.Equal(t, c.code, code, said)
			for _, words := range c.says {
				assert.Contains(t, said, words)
			}
		})
	}
}
