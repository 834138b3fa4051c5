package command

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

const enrolmentDoc = "docs/operator/enrolment.md"

// operator runs the document's commands beside a control plane.
type operator struct {
	t   *testing.T
	dir string
	api string
	ran map[string]bool // blocks of the document
}

func newDocReader(t *testing.T) *operator {
	t.Helper()
	data, api := servingData(t)
	t.Setenv(flags.EnvDatabase, data.Database.URL)
	t.Setenv("PIPEOPS_DATA_DIR", data.Dir)
	return &operator{t: t, dir: t.TempDir(), api: api, ran: map[string]bool{}}
}

// does runs the block of the document that has a text in it, as it is written, and returns its
// output.
func (o *operator) does(has string, env ...string) string {
	o.t.Helper()
	block, err := harness.ShellWith(enrolmentDoc, has)
	require.NoError(o.t, err)
	o.ran[block] = true
	return o.bash(block, env...)
}

func (o *operator) bash(text string, env ...string) string {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(o.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", text)
	cmd.Dir, cmd.Env = o.dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	require.NoError(o.t, err, "%s\n%s", text, out)
	return string(out)
}

// token is the one that the last block wrote.
func (o *operator) token() controlapi.Token {
	o.t.Helper()
	text, err := os.ReadFile(filepath.Join(o.dir, "agent-token"))
	require.NoError(o.t, err)
	token, err := controlapi.ParseToken(string(text))
	require.NoError(o.t, err)
	return token
}

var codeOf = problemtest.Code

// TestEnrolmentDocs_Commands runs every block of docs/operator/enrolment.md, with
// clusters that register as agents do.
func TestEnrolmentDocs_Commands(t *testing.T) {
	o := newDocReader(t)
	o.does("token create --name fleet")
	first := o.token()
	require.NoError(t, registerWith(t.Context(), o.api, first, "bank", selfsigned.Key(t)))
	assert.Regexp(t, first.ID+` +fleet +live +19 of 20 +in \S+ +\S+ ago +bank \([a-z2-7]{16}\) +no +- +region=eu`, o.does("token list"))
	said := o.does("token rotate", "TOKEN_ID="+first.ID)
	second := o.token()
	assert.Contains(t, said, "token "+second.ID+" came in the place of "+first.ID+", which ends in 4")
	assert.Regexp(t, first.ID+` .*, for `+second.ID, o.does("token list"))
	require.NoError(t, registerWith(t.Context(), o.api, first, "during-the-overlap", selfsigned.Key(t)))

	o.does("token create --approve")
	token, key := o.token(), selfsigned.Key(t)
	assert.Equal(t, controlapi.CodeApprovalPending, codeOf(registerWith(t.Context(), o.api, token, "shop", key)))
	assert.Equal(t, controlapi.CodeApprovalPending, codeOf(registerWith(t.Context(), o.api, token, "till-7", selfsigned.Key(t))))
	print, err := controlapi.KeyFingerprint(key.Public())
	require.NoError(t, err)
	said = o.does("pipeops-controlplane agent list\n")
	assert.Regexp(t, `Waiting for approval:\nNAME +ID +STATE +CLUSTER +FROM +AGENT +KEY`, said)
	assert.Regexp(t, `shop +[a-z2-7]{16} +pending +uid-shop +127.0.0.1 +1.0 +`+controlapi.ShortPrint(print)+` +`+token.ID, said)
	assert.Contains(t, o.does("agent approve shop"), "is approved, with key "+controlapi.ShortPrint(print))
	require.NoError(t, registerWith(t.Context(), o.api, token, "shop", key))
	assert.Contains(t, o.does("agent deny"), "would still let it in")
	o.does("agent get shop")

	blocks, err := harness.Shell(enrolmentDoc)
	require.NoError(t, err)
	for _, block := range blocks {
		if strings.Contains(block, "kubectl") { // test/e2e has a cluster: TestToken_Replaced
			continue
		}
		assert.True(t, o.ran[block], "not run:\n%s", block)
	}
}

// TestRunnersDocs_Commands runs the commands of docs/operator/runners.md that are for the control
// plane. runnerapi/announce runs those for RabbitMQ.
func TestRunnersDocs_Commands(t *testing.T) {
	o := newDocReader(t)
	o.does("token create --name fleet")
	require.NoError(t, registerWith(t.Context(), o.api, o.token(), "shop", selfsigned.Key(t)))
	blocks, err := harness.Shell("docs/operator/runners.md")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(blocks), 2)
	for _, block := range blocks[:2] {
		o.bash(block)
	}
	assert.Contains(t, o.bash("pipeops-controlplane agent get shop"), "env=prod")
}

func TestAgentList_ShowsClones(t *testing.T) {
	copied := announce.Agent{ID: "a2", Name: "shop", State: announce.StateOnline, Clones: []announce.Clone{{ClusterUID: "other", Instance: "vm-1", Address: "192.0.2.1"}}}
	var out strings.Builder
	cloneTable(&out, []announce.Agent{{ID: "a1", Name: "bank"}, copied})
	assert.Contains(t, out.String(), "Identities in use twice:")
	assert.Regexp(t, `shop\s+a2\s+in cluster other\s+vm-1\s+192.0.2.1`, out.String())
	assert.NotContains(t, out.String(), "bank")

	e, err := announce.NewAgentEvent(announce.AgentCloned, "/controlplane", copied, 1, time.Now())
	require.NoError(t, err)
	assert.Contains(t, operatorapi.Summary(e), "its identity is in use twice: a copy in cluster other, called vm-1, comes from 192.0.2.1")
}
