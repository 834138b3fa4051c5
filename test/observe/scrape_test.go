package observe

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

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
	text, err := yaml.Marshal(map[string]any{"scrape_configs": list})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "prometheus.yaml")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	out, err := exec.CommandContext(t.Context(), tool, "check", "config", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
