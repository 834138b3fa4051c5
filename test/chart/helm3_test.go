package chart

import (
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestChart_Helm3RendersSame compares Helm 3 with Helm 4 for all example values.
func TestChart_Helm3RendersSame(t *testing.T) {
	suite.Release(t, "the charts with Helm 3")
	helm3, err := programs.Helm3.Build(t.Context())
	require.NoError(t, err)
	for _, chart := range []string{agentChart, controlChart} {
		for _, file := range valuesFiles(t, chart) {
			args := []string{"template", filepath.Base(chart), chart, "--namespace", "pipeops", "--values", file, "--kube-version", kubeVersion}
			cmd := exec.CommandContext(t.Context(), helm3, args...)
			cmd.Dir = harness.Root()
			said, err := cmd.Output()
			require.NoError(t, err, file)
			assert.Equal(t, parse(t, []byte(helm(t, args[:len(args)-2]...))), parse(t, said), file)
		}
	}
}
