package chart

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// TestChart_Presets compares the presets with the page about sizing.
func TestChart_Presets(t *testing.T) {
	for name, want := range map[string]struct {
		replicas   int64
		cpu, limit string
		soft       string
		installs   bool
	}{
		"minimum":         {1, "10m", "160Mi", "116MiB", false},
		"production":      {2, "50m", "256Mi", "192MiB", false},
		"full-monitoring": {2, "50m", "256Mi", "192MiB", true},
	} {
		file := filepath.Join(harness.Root(), agentChart, "presets", name+".yaml")
		all := render(t, agentChart, "single.yaml", "--values", file)
		agent := all["Deployment pipeops-agent"]
		assert.EqualValues(t, want.replicas, agent.Object["spec"].(map[string]any)["replicas"], name)
		resources := container(t, agent)["resources"].(map[string]any)
		assert.Equal(t, want.cpu, resources["requests"].(map[string]any)["cpu"], name)
		assert.Equal(t, map[string]any{"memory": want.limit}, resources["limits"], name)
		assert.Contains(t, container(t, agent)["env"], map[string]any{"name": "GOMEMLIMIT", "value": want.soft}, name)
		if !want.installs {
			assert.NotContains(t, all, "Job pipeops-components", name)
			continue
		}
		assert.Contains(t, container(t, all["Job pipeops-components"])["args"], "full", name)
	}
}
