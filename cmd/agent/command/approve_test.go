package command

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestApproveList escapes control characters.
func TestApproveList(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b strings.Builder
	approvalTable(&b, []runnerapi.Approval{
		{ID: "a1", Runner: "ci", Command: "exec-app", Namespace: "shop", Name: "web", Asked: at, Until: at.Add(time.Hour), Run: []string{"sh", "-c", "rm -r /data\x1b[2K\u009b1A\nls"}},
		{ID: "a2", Runner: "ci", Command: "put-app", Namespace: "shop", Name: "web", Asked: at, Until: at.Add(time.Hour), Arguments: []byte(`{"body":{"image":"a"}}`), Approved: &at},
	})
	got := b.String()
	assert.Contains(t, got, "sh -c rm -r /data")
	assert.Contains(t, got, `{"body":{"image":"a"}}`)
	assert.Contains(t, got, "2026-01-01T01:00:00Z")
	assert.NotContains(t, got, "\x1b")
	assert.NotContains(t, got, "\u009b")
	assert.Equal(t, 3, strings.Count(got, "\n"))
	assert.Equal(t, "drain-node", approvedCommand(runnerapi.Approval{Command: "drain-node"}))
	assert.Equal(t, "put-app shop/web", approvedCommand(runnerapi.Approval{Command: "put-app", Namespace: "shop", Name: "web"}))
}
