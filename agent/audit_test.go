package agent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// TestAudit_RequiredRefusesUnrecorded where the policy says so: a command is refused while the audit log
// cannot be written, what only reads is not, and afterwards each command has a record of before.
func TestAudit_RequiredRefusesUnrecorded(t *testing.T) {
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy.yaml")
	require.NoError(t, os.WriteFile(policy, []byte("audit: required\n"), 0o600))
	p := planetest.Start(t)
	run(t, p, dir, token(t, p), func(c *config.Config) { c.PolicyFile = policy })
	ci := holding(t, issueRunner(t, p, "ci"), p.AwaitOnline(t, time.Time{}), func(c *client.Config) { c.Patience = time.Second })

	blocked := filepath.Join(dir, "audit") // the log's directory
	require.NoError(t, os.RemoveAll(blocked))
	require.NoError(t, os.WriteFile(blocked, nil, 0o600))
	key := runnerapi.Key{Namespace: "recorded", Name: "values"}
	put := func() error {
		_, err := ci.Namespaces().Set(t.Context(), key.Namespace, runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
		return err
	}
	e := &runnerapi.Error{}
	require.ErrorAs(t, put(), &e)
	assert.Equal(t, backend.CodeAuditUnavailable, e.Code)
	assert.Equal(t, http.StatusServiceUnavailable, e.Status)
	assert.Contains(t, e.Detail, "audit: required")
	_, err := ci.Namespaces().Get(t.Context(), key.Namespace)
	require.ErrorAs(t, err, &e)
	assert.Equal(t, runnerapi.CodeNotFound, e.Code, "nothing was carried out, and reading goes on")

	require.NoError(t, os.Remove(blocked))
	require.NoError(t, put())
	list, err := ci.Audit().List(t.Context(), -1, 100)
	require.NoError(t, err)
	begun := false
	for _, r := range list.Items {
		if r.Command == "put-namespace" && r.Outcome == runnerapi.AuditBegun {
			begun = true
			assert.Equal(t, "ci", r.Runner)
			assert.Equal(t, key.Namespace, r.Namespace)
			assert.NotEmpty(t, r.RequestID)
			assert.NotEmpty(t, r.Certificate)
		}
	}
	assert.True(t, begun, "the record was kept before the command was answered")
}
