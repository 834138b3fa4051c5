package agent

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// TestChecks_ReportFailuresFirst, and no more than a heartbeat takes.
func TestChecks_ReportFailuresFirst(t *testing.T) {
	long := strings.Repeat("ä", 2000)
	report := doctor.Report{Findings: []doctor.Finding{
		{Check: "policy", Status: doctor.Warning, Detail: "paused\x1b[2J", Fix: long},
		{Check: "disk", Status: doctor.OK, Detail: "enough"}, {Check: "rendering", Status: doctor.Skipped, Detail: "unknown"},
		{Check: "memory", Status: doctor.Failed, Detail: long},
	}}
	got := checksOf(report).Findings
	require.Len(t, got, 2)
	assert.Equal(t, "memory", got[0].Check)
	assert.Equal(t, "policy", got[1].Check)
	assert.NotContains(t, got[1].Detail, "\x1b")
	for _, text := range []string{got[0].Detail, got[1].Fix} {
		assert.LessOrEqual(t, len([]rune(text)), controlapi.MaxFindingDetail)
	}
	for range 100 {
		report.Findings = append(report.Findings, doctor.Finding{Check: "permissions", Status: doctor.Failed, Detail: "may not"})
	}
	assert.Len(t, checksOf(report).Findings, controlapi.MaxFindings)
	assert.Empty(t, checksOf(doctor.Report{}).Findings)
}
