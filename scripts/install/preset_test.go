package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

const manifest = "../../deployments/agent.yaml"

// preset is a values file of the agent's chart.
type preset struct {
	Agent struct {
		Components struct{ Set string }
	}
	ReplicaCount int
	Resources    struct {
		Requests struct{ CPU, Memory string }
		Limits   struct{ Memory string }
	}
	GoMemLimit string
}

func presets(t *testing.T) map[string]preset {
	t.Helper()
	found, err := filepath.Glob("../../deployments/helm/pipeops-agent/presets/*.yaml")
	require.NoError(t, err)
	all := map[string]preset{}
	for _, path := range found {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var p preset
		require.NoError(t, yaml.Unmarshal(text, &p))
		all[strings.TrimSuffix(filepath.Base(path), ".yaml")] = p
	}
	require.Len(t, all, 3)
	return all
}

// TestSettings_WithoutCarriageReturn has settings of files that were written on Windows.
func TestSettings_WithoutCarriageReturn(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("pipeops_a_b.c@cp.example.com:8443\r\n"), 0o600))
	said := bashOK(t, `declare -p AGENT_TOKEN CLUSTER_NAME PIPEOPS_CONTROL_PLANE_URL PIPEOPS_WAIT PRESET`,
		"AGENT_TOKEN_FILE="+token+"\r", "CLUSTER_NAME=prod-1\r", "PIPEOPS_WAIT=60\r", "PRESET=minimum\r")
	assert.NotContains(t, said, "\\r")
	assert.Contains(t, said, `PIPEOPS_CONTROL_PLANE_URL="https://cp.example.com:8443"`)
}

// TestPreset_MatchesChart: the installer writes the chart's preset into the manifest, and nothing
// else.
func TestPreset_MatchesChart(t *testing.T) {
	before, err := os.ReadFile(manifest)
	require.NoError(t, err)
	for name, want := range presets(t) {
		file := filepath.Join(t.TempDir(), "agent.yaml")
		require.NoError(t, os.WriteFile(file, before, 0o600))
		said := bashOK(t, `preset_valid; preset_apply "$FILE"; preset_components`, "PRESET="+name, "FILE="+file)
		assert.Equal(t, want.Agent.Components.Set+"\n", said, name)
		after, err := os.ReadFile(file)
		require.NoError(t, err)
		agent := agentOf(t, after).Spec.Template.Spec.Containers[0]
		assert.Equal(t, want.Resources.Requests.CPU, agent.Resources.Requests.Cpu().String(), name)
		assert.Equal(t, want.Resources.Requests.Memory, agent.Resources.Requests.Memory().String(), name)
		assert.Equal(t, want.Resources.Limits.Memory, agent.Resources.Limits.Memory().String(), name)
		assert.Contains(t, fmt.Sprint(agent.Env), "GOMEMLIMIT "+want.GoMemLimit, name)
		assert.LessOrEqual(t, changed(string(before), string(after)), 4, name)
	}
	file := filepath.Join(t.TempDir(), "agent.yaml")
	require.NoError(t, os.WriteFile(file, before, 0o600))
	said := bashOK(t, `preset_apply "$FILE"; PRESET=default; preset_apply "$FILE"; preset_components`, "FILE="+file)
	assert.Equal(t, "default\n", said)
	after, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(before, after))
}

// changed counts the lines that differ.
func changed(before, after string) (n int) {
	lines := strings.Split(after, "\n")
	for i, line := range strings.Split(before, "\n") {
		if i >= len(lines) || lines[i] != line {
			n++
		}
	}
	return n
}

func agentOf(t *testing.T, text []byte) appsv1.Deployment {
	t.Helper()
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 64<<10)
	for {
		var d appsv1.Deployment
		err := decoder.Decode(&d)
		require.False(t, errors.Is(err, io.EOF), "there is no Deployment")
		if err == nil && d.Kind == "Deployment" {
			return d
		}
	}
}

func TestPreset_KeptForNextRun(t *testing.T) {
	state := "PIPEOPS_INSTALL_STATE=" + t.TempDir()
	bashOK(t, `echo "[$PRESET]"; preset_keep`, state, "PRESET=minimum")
	said := bashOK(t, `echo "[$PRESET]"; preset_keep`, state)
	assert.Equal(t, "[minimum]\n", said)
	bashOK(t, `preset_keep`, state, "PRESET=default")
	said = bashOK(t, `echo "[$PRESET]$(preset_resources)"`, state)
	assert.Equal(t, "[default]\n", said)

	said, code := bash(t, "agent_token_kept() { return 0; }; components_valid() { return 0; }; settings_check", "PRESET=tiny", "CLUSTER_NAME=a",
		"PIPEOPS_CONTROL_PLANE_URL=https://cp.example.com")
	assert.Equal(t, 2, code, said)
	assert.Contains(t, said, "PRESET=tiny: use one of default minimum production full-monitoring")
}

// TestPreflight_Memory: 512 MB are enough for a worker, and cause a warning for a server.
func TestPreflight_Memory(t *testing.T) {
	for _, c := range []struct {
		memory       int
		role, preset string
		says         string // empty: nothing
	}{
		{449, "agent", "", "4|PO-9007|this machine has 449 MB of memory"},
		{449, "server", "", "4|PO-9007|this machine has 449 MB of memory"},
		{490, "agent", "", ""}, // what Linux shows of 512 MB
		{512, "agent", "", ""},
		{512, "server", "", "WARNING: 512 MB of memory are less than the 900 MB that a k3s server needs"},
		{899, "server", "", "WARNING: 899 MB"},
		{900, "server", "minimum", "900 MB of memory leave little for apps"},
		{1900, "server", "minimum", ""},
		{1900, "server", "production", "WARNING: the preset production is for machines with 4 GiB of memory, and this one has 1900 MB"},
		{1900, "agent", "production", ""},
		{3915, "server", "production", ""},
		{3915, "server", "full-monitoring", "WARNING: the preset full-monitoring is for machines with 8 GiB"},
	} {
		said, code := bash(t, fmt.Sprintf(`
facts=([OS]=linux [ARCH]=amd64 [INIT]=systemd [ROOT]=yes [CGROUPS]=v2 [DISK_FREE_MB]=20000 [MEMORY_MB]=%d [WANT_ROLE]=%s [WANT_PRESET]=%s)
decide
printf '%%s\n' "${obstacles[@]}" "${remarks[@]}"`, c.memory, c.role, c.preset))
		require.Zero(t, code, said)
		said = strings.TrimSpace(said)
		if c.says == "" {
			assert.Empty(t, said, "%+v", c)
			continue
		}
		assert.True(t, strings.HasPrefix(said, c.says), "%+v: %s", c, said)
		assert.NotContains(t, said, "\n", "%+v", c)
	}
}
