package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	helmregistry "helm.sh/helm/v4/pkg/registry"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/test/programs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// helmIn returns a function that runs the real Helm, without anything of this user's.
func helmIn(t *testing.T) func(args ...string) string {
	t.Helper()
	helm, err := programs.Helm.Build(t.Context())
	require.NoError(t, err)
	return func(args ...string) string {
		t.Helper()
		home := t.TempDir()
		cmd := exec.CommandContext(t.Context(), helm, args...)
		cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
		said, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", said)
		return string(said)
	}
}

// TestPushCharts_HelmPulls pushes the charts of a release twice, and has Helm pull one.
func TestPushCharts_HelmPulls(t *testing.T) {
	suite.Release(t, "charts pushed to a registry")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	dir, to := small(t, "../.."), "oci://"+strings.TrimPrefix(server.URL, "http://")+"/charts"
	var said bytes.Buffer
	r := release{version: "v1.2.3", dir: dir, chartRegistry: to, out: &said}
	require.NoError(t, json.Unmarshal(read(t, dir, "release.json"), &r.manifest))
	for range 2 {
		require.NoError(t, chartPusher{&r}.run(helmregistry.ClientOptPlainHTTP()))
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	require.Len(t, lines, 2)
	assert.Equal(t, lines[0], lines[1], "the same chart has the same digest")
	assert.Contains(t, lines[0], "/charts/pipeops-agent:1.2.3@sha256:")
	pulled := t.TempDir()
	helmIn(t)("pull", to+"/pipeops-agent", "--version", "1.2.3", "--plain-http", "--destination", pulled)
	assert.Equal(t, read(t, dir, "pipeops-agent-1.2.3.tgz"), read(t, pulled, "pipeops-agent-1.2.3.tgz"))

	server.Close()
	err := chartPusher{&r}.run(helmregistry.ClientOptPlainHTTP())
	assert.ErrorContains(t, err, "run: helm push "+filepath.Join(dir, "pipeops-agent-1.2.3.tgz")+" "+to)
}

// chartIsWhatHelmPacks compares the chart with the one that `helm package` makes,
// and renders it as its users do.
func chartIsWhatHelmPacks(t *testing.T, dir string) {
	run := helmIn(t)
	packed, ours := t.TempDir(), filepath.Join(dir, "pipeops-agent-1.2.3.tgz")
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
