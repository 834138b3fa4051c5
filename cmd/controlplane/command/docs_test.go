package command

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

func TestCertificatesDocs_Commands(t *testing.T) {
	blocks, err := harness.Shell("docs/operator/certificates.md")
	require.NoError(t, err)
	require.Len(t, blocks, 8)
	var script strings.Builder
	script.WriteString("served\n")
	for i := range blocks {
		fmt.Fprintf(&script, "exec sh -eu block%d.sh\n", i)
		if strings.Contains(blocks[i], "ca rotate abort") {
			script.WriteString("stderr 'The new CA is dropped'\n")
		}
	}
	script.WriteString("exec pipeops-controlplane ca get\nstdout ' former '\n")
	for i, block := range blocks {
		fmt.Fprintf(&script, "-- block%d.sh --\n%s", i, block)
	}
	runScript(t, script.String())
}

// TestSelfUpdateDocs_Commands runs the operator's commands with a test key: an unreleased program
// knows no other.
func TestSelfUpdateDocs_Commands(t *testing.T) {
	block, err := harness.ShellWith("docs/cluster-owner/self-update.md", "offer create")
	require.NoError(t, err)
	runScript(t, "served shop\nmkdir dist\nmv release dist/v1.2.3\nexec sh -eu block.sh\nstdout 'v1.2.3.*https://downloads.example.com/v1.2.3'\n"+
		"stderr 'v1.2.3 is not offered to .* any more'\n-- block.sh --\n"+
		strings.ReplaceAll(block, "--url", "--key "+releasetest.PublicKey+" --url"))
}

// runScript runs one script with its own data directory.
func runScript(t *testing.T, script string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "script.txtar")
	require.NoError(t, os.WriteFile(file, []byte(script), 0o600))
	testscript.Run(t, testscript.Params{
		Files: []string{file}, RequireExplicitExec: true, Setup: setUp(t),
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"served": func(ts *testscript.TestScript, _ bool, args []string) { served(ts, args) },
		},
	})
}

func TestWebhookDocs_Commands(t *testing.T) {
	block, err := harness.ShellWith("docs/operator/webhooks.md", "webhook create")
	require.NoError(t, err)
	runScript(t, "served shop\nexec sh -eu block.sh\nstdout '^pager +on +cloudevents +app.failed,alert.firing'\nstdout '^shops +on +cloudevents +all +env=prod'\n"+
		"grep '^whsec_' pager-secret\ngrep '^whsec_' shops-secret\nexec pipeops-controlplane webhook list\n! stdout shops\n-- block.sh --\n"+block)
}
