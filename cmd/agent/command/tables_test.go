package command

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestComponentsStatus has components that are installed, and what others provide.
func TestComponentsStatus(t *testing.T) {
	release := func(name, status, version, newest string) []components.ReleaseStatus {
		return []components.ReleaseStatus{{Namespace: "a", Name: name, Status: status, Version: version, Newest: newest, Changed: time.Now().Add(-49 * time.Hour)}}
	}
	var out strings.Builder
	statusTable(&out, []components.Status{
		{Component: "vpa", What: "recommendations", Releases: release("vpa", "deployed", "0.10.0", "0.11.0"), State: &components.State{Component: "vpa", Ready: true}},
		{Component: "loki", What: "logs", Releases: release("loki", "deployed", "1.0.0", "1.0.0"), State: &components.State{
			Component: "loki", Workload: "monitoring/loki", Cause: "ImageNotFound", Message: "the image does not exist", Fix: "correct it",
		}},
		{Component: "grafana", What: "dashboards", Releases: release("grafana", "pending-install", "1.0.0", "1.0.0")},
		{Component: "ingress", What: "an ingress controller", Present: "IngressClass traefik"},
		{Component: "istio", What: "a service mesh"},
	})
	for _, line := range []string{
		`COMPONENT +STATE +RELEASE +VERSION +NEWEST +AGE +PROVIDES`,
		`vpa +ready +vpa +0\.10\.0 +0\.11\.0 +2d`,
		`loki +ImageNotFound +loki`,
		`grafana +pending-install +grafana`,
		`ingress +others': IngressClass traefik +- +- +- +-`,
		`istio +absent`,
		`loki: monitoring/loki: the image does not exist \(fix: correct it\)`,
	} {
		assert.Regexp(t, line, strings.ReplaceAll(out.String(), "\t", " "))
	}
}

// TestApproveList escapes control characters.
func TestApproveList(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var b strings.Builder
	all := []runnerapi.Approval{
		{ID: "a1", Runner: "ci", Command: "exec-app", Namespace: "shop", Name: "web", Asked: at, Until: at.Add(time.Hour), Request: runnerapi.ApprovalView{Method: "GET", Path: "/v1/exec", Query: map[string][]string{"command": {"sh", "-c", "rm -r /data\x1b[2K\u009b1A\nls"}}}},
		{ID: "a2", Runner: "ci", Command: "put-app", Namespace: "shop", Name: "web", Asked: at, Until: at.Add(time.Hour), Request: runnerapi.ApprovalView{User: "dev", Body: []byte(`{"image":"a"}`), Unseen: "it is large"}, Approved: &at},
	}
	approvalTable(&b, all)
	require.NoError(t, approvalDetails(&b, all))
	got := b.String()
	for _, part := range []string{`query command: "sh" "-c" "rm -r /data\x1b[2K\u009b1A\nls"`, `body: {"image":"a"}`, `as user "dev"`, "NOT ALL IS SHOWN: it is large"} {
		assert.Contains(t, got, part)
	}
	assert.Contains(t, got, "2026-01-01T01:00:00Z")
	assert.NotContains(t, got, "\x1b")
	assert.NotContains(t, got, "\u009b")
	assert.Equal(t, "drain-node", approvedCommand(runnerapi.Approval{Command: "drain-node"}))
	assert.Equal(t, "put-app shop/web", approvedCommand(runnerapi.Approval{Command: "put-app", Namespace: "shop", Name: "web"}))
}
