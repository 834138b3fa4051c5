package chart

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// notInPods are documented settings without a value, each with the reason.
var notInPods = map[string]map[string]string{
	agentChart: {
		"AGENT_TOKEN_FILE":       "the pod has the token from its Secret",
		"PIPEOPS_STATE_DIR":      "the identity is in a Secret, which outlives the pod",
		"PIPEOPS_POLICY_FILE":    "the policy is the ConfigMap pipeops-policy",
		"KUBECONFIG":             "the pod uses its ServiceAccount",
		"PIPEOPS_HEALTH_ADDRESS": "probes and the NetworkPolicy name the port",
		"PIPEOPS_PPROF_ADDRESS":  "for developers; extraArgs takes it",
		"NODE_TYPE":              "for the installer of a machine",
		"NOTIFY_SOCKET":          "of systemd",
		"WATCHDOG_USEC":          "of systemd",
		"OTEL_SDK_DISABLED":      "an empty tracing.endpoint does the same",
	},
	controlChart: {
		"PIPEOPS_API_LISTEN":    "the Service and probes name the port; service.ports is what peers see",
		"PIPEOPS_TUNNEL_LISTEN": "the Service names the port; service.ports is what peers see",
		"PIPEOPS_EDGE_LISTEN":   "the Service names the port; service.ports is what peers see",
		"PIPEOPS_PEER_LISTEN":   "only control planes and gateways of the release connect to it",
		"PIPEOPS_HEALTH_LISTEN": "probes name the port",
		"PIPEOPS_PPROF_LISTEN":  "for developers; extraArgs takes it",
		"PIPEOPS_BROKER_URL":    "the URL comes from a Secret, with its password",
		"OTEL_SDK_DISABLED":     "an empty tracing.endpoint does the same",
	},
}

// TestChart_ValueForEachSetting compares the reference pages with what the charts set when
// every value is given.
func TestChart_ValueForEachSetting(t *testing.T) {
	traces := found(t, "docs/reference/traces.md", `(OTEL_[A-Z_]+)`, "## Settings", "\n## ")
	for chart, documented := range map[string][]string{
		agentChart: slices.Concat(traces, found(t, "docs/reference/configuration.md", "`([A-Z][A-Z0-9_]+)`", "| key in the file", "## Configuration file")),
		controlChart: slices.Concat(traces,
			flagsOf(t, "the-control-plane-itself", "serve"), flagsOf(t, "public-hosts", "gateway serve")),
	} {
		require.Greater(t, len(documented), 30)
		set := variables(t, chart)
		for _, name := range documented {
			reason, left := notInPods[chart][name]
			switch {
			case left && set[name]:
				t.Errorf("%s: the chart sets %s, which notInPods says it does not: %s", chart, name, reason)
			case !left && !set[name]:
				t.Errorf("%s: no value sets %s (fix: give it one and name it in ci/everything.yaml, or give the reason in notInPods)", chart, name)
			}
		}
		for name := range notInPods[chart] {
			assert.True(t, slices.Contains(documented, name), "notInPods of %s names %s, which is not documented", chart, name)
		}
	}
}

// found are the words of a part of a page.
func found(t *testing.T, page, pattern, from, to string) (names []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(harness.Root(), page))
	require.NoError(t, err)
	_, part, ok := strings.Cut(string(text), from)
	require.True(t, ok, "%s has no %q", page, from)
	part, _, _ = strings.Cut(part, to)
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(part, -1) {
		names = append(names, match[1])
	}
	return names
}

// flagsOf are the variables of a command's flags, from the page of its group.
func flagsOf(t *testing.T, page, command string) (names []string) {
	t.Helper()
	for _, flag := range found(t, "docs/reference/controlplane-cli/"+page+".md", `(?m)^ +(?:-\w, )?--([a-z0-9-]+)`, "# pipeops-controlplane "+command+"\n", "\n##") {
		names = append(names, "PIPEOPS_"+strings.ToUpper(strings.ReplaceAll(flag, "-", "_")))
	}
	return names
}

// variables are those that a chart's containers have, over all of its examples.
func variables(t *testing.T, chart string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, file := range valuesFiles(t, chart) {
		for key, o := range render(t, chart, filepath.Base(file)) {
			switch o.GetKind() {
			case "ConfigMap":
				for name := range maps.Keys(settings(objects{key: o}, o.GetName())) {
					names[name] = true
				}
			case "Deployment", "StatefulSet":
				for name := range maps.Keys(environment(t, o)) {
					names[name] = true
				}
			}
		}
	}
	return names
}
