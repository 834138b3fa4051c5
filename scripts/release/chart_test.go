package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// chartIsWhatHelmPacks compares the chart with the one that `helm package` makes,
// and renders it as its users do.
func chartIsWhatHelmPacks(t *testing.T, dir string) {
	helm, err := programs.Helm.Build(t.Context())
	require.NoError(t, err)
	run := func(args ...string) string {
		t.Helper()
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), helm, args...)
		cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return string(said)
	}
	packed, ours := t.TempDir(), filepath.Join(dir, "pipeops-agent-chart_1.2.3.tgz")
	run("package", "../../deployments/helm/pipeops-agent", "--version", "1.2.3", "--app-version", "v1.2.3", "--destination", packed)
	want, got := untar(t, filepath.Join(packed, "pipeops-agent-1.2.3.tgz")), untar(t, ours)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	for name, content := range want {
		switch name {
		case "pipeops-agent/Chart.yaml":
			var theirs, mine map[string]any
			require.NoError(t, yaml.Unmarshal(content, &theirs))
			require.NoError(t, yaml.Unmarshal(got[name], &mine))
			assert.Equal(t, theirs, mine)
		case "pipeops-agent/values.yaml": // the digest is ours alone
		default:
			assert.Equal(t, string(content), string(got[name]), name)
		}
	}
	run("lint", "--strict", ours, "--set", "agent.controlPlaneUrl=https://cp.example.com,agent.clusterName=prod-1")
	rendered := run("template", "pipeops-agent", ours, "--namespace", "pipeops", "--set", "agent.controlPlaneUrl=https://cp.example.com,agent.clusterName=prod-1")
	assert.True(t, strings.Contains(rendered, `app.kubernetes.io/version: "v1.2.3"`))
	image := regexp.MustCompile(`image: pipeops/agent@(sha256:[0-9a-f]{64})\n`).FindStringSubmatch(rendered)
	require.NotEmpty(t, image)
	assert.Contains(t, string(read(t, dir, "agent.yaml")), image[1])
	byTag := run("template", "pipeops-agent", ours, "--set", "agent.controlPlaneUrl=https://cp.example.com,agent.clusterName=prod-1,image.digest=")
	assert.True(t, strings.Contains(byTag, "image: pipeops/agent:v1.2.3\n"), "docs/contributing/publishing.md has it so")
}
