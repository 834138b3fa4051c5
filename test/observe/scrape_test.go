package observe

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// TestScrape_JobsValid has promtool read them.
func TestScrape_JobsValid(t *testing.T) {
	tool := promtool(t)
	var list []any
	for _, job := range monitoringtest.Jobs(t) {
		list = append(list, job)
	}
	require.Len(t, list, 3)
	approves(t, tool, map[string]any{"scrape_configs": list}, "check", "config")
}
