package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// TestMetrics reads those of a real agent that has carried out a command.
func TestMetrics(t *testing.T) {
	at, p := freeport.Address(t), planetest.Start(t)
	run(t, p, t.TempDir(), token(t, p), func(c *config.Config) { c.MetricsAddress = at })
	c := visitor(t, p, "tallier", "", p.AwaitOnline(t, time.Time{}))
	_, err := c.Namespaces().Set(t.Context(), "tallied", runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)

	var text string
	await.Until(t, "the numbers", func() bool {
		text = answerOf(t, at, "/metrics")
		return strings.Contains(text, "\npipeops_agent_leading 1\n") && strings.Contains(text, "\npipeops_agent_ready 1\n")
	})
	for _, want := range []string{
		"pipeops_agent_tunnel_connected 1", `pipeops_agent_command_duration_seconds_count{call="put-namespace",code="2xx"} 1`,
		`pipeops_agent_check_ok{check="kubernetes"} 1`, `pipeops_agent_check_ok{check="tunnel"} 1`,
		"pipeops_agent_audit_lost_records_total 0", `pipeops_agent_apps{phase="Failed"} 0`, "pipeops_agent_events_waiting 0",
		"pipeops_agent_calls_open 0",
	} {
		assert.True(t, strings.Contains(text, "\n"+want+"\n"), want)
	}
	for _, want := range []string{"pipeops_agent_certificate_expiry_timestamp_seconds ", `pipeops_agent_heartbeats_total{result="taken"} `,
		"rest_client_requests_total{", "process_resident_memory_bytes ", `controller_runtime_reconcile_total{controller="app"`} {
		assert.True(t, strings.Contains(text, "\n"+want), want)
	}
	for _, secret := range []string{"tallied", "tallier"} {
		assert.False(t, strings.Contains(text, secret), "%s is told", secret)
	}
	assert.Less(t, strings.Count(text, "\n"), 700, "lines: what nobody asks for is left out")
}
