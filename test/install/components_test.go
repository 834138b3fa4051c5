package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

// parts has the functions of install.sh, without its main.
const parts = `cd ../../scripts/install && for part in settings preset log facts decide state download pinned k3s kube components; do . ./$part.sh; done
settings_load; LOG_FILE="$PIPEOPS_INSTALL_STATE/log"; dry_run=no; tmp_dir="$PIPEOPS_INSTALL_STATE"; mkdir -p "$STATE_DIR"
`

// functions runs commands with the functions of install.sh, and a kubectl that is a function.
func functions(t *testing.T, settings []string, commands string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", "set -Eeuo pipefail\n"+parts+commands)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, settings...)
	return outcome(t, cmd)
}

func TestComponents_Listed(t *testing.T) {
	said, code := functions(t, []string{"PIPEOPS_INSTALL_STATE=" + t.TempDir()}, `echo "${COMPONENTS_KNOWN[*]}"; echo "${COMPONENTS_NAMESPACES[*]}"`)
	require.Zero(t, code, said)
	names, namespaces, _ := strings.Cut(said, "\n")
	assert.Equal(t, components.Names(), strings.Fields(names))
	own := strings.Fields(namespaces)
	for _, c := range components.All() {
		if c.Namespace != "monitoring" && c.Namespace != "kube-system" { // which are there anyhow
			assert.Contains(t, own, c.Namespace)
		}
	}
}

// TestComponents_Chosen: COMPONENTS, the cluster and earlier runs decide.
func TestComponents_Chosen(t *testing.T) {
	bundle := t.TempDir()
	add(t, bundle, "with/charts/vpa-1.tgz", "chart")
	for name, c := range map[string]struct {
		settings []string
		decided  string
		state    string
		want     string
	}{
		"fresh":                         {nil, "k3s", "", "default"},
		"k3d":                           {nil, "k3d", "", "default"},
		"existing":                      {nil, "existing", "", "none"},
		"existing, asked":               {[]string{"COMPONENTS=vpa, loki"}, "existing", "", "vpa,loki"},
		"none":                          {[]string{"COMPONENTS=none"}, "k3s", "", "none"},
		"installed before":              {nil, "k3s", "components-before none\ncomponents-done default\n", "none"},
		"broke off before":              {nil, "k3s", "components-before none\n", "default"},
		"installed before, asked again": {[]string{"COMPONENTS=full"}, "k3s", "components-done default\n", "full"},
		"a preset":                      {[]string{"PRESET=full-monitoring"}, "k3s", "", "full"},
		"a preset, installed before":    {[]string{"PRESET=full-monitoring"}, "k3s", "components-done minimal\n", "full"},
		"a preset, existing":            {[]string{"PRESET=full-monitoring"}, "existing", "", "none"},
		"a preset and components":       {[]string{"PRESET=minimum", "COMPONENTS=vpa"}, "k3s", "", "vpa"},
		"a bundle without charts":       {[]string{"PIPEOPS_BUNDLE=" + bundle}, "k3s", "", "none"},
		"a bundle with charts":          {[]string{"PIPEOPS_BUNDLE=" + bundle + "/with"}, "k3s", "", "default"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			add(t, dir, "installed", c.state)
			said, code := functions(t, append(c.settings, "PIPEOPS_INSTALL_STATE="+dir),
				"components_valid; decided="+c.decided+"; components_choose; echo \"chosen: $components_wanted\"")
			require.Zero(t, code, said)
			assert.Contains(t, said, "chosen: "+c.want+"\n")
		})
	}
	said, code := functions(t, []string{"PIPEOPS_INSTALL_STATE=" + t.TempDir(), "COMPONENTS=vpa", "PIPEOPS_BUNDLE=" + bundle}, "decided=k3s; components_choose")
	assert.Equal(t, 5, code, said)
	assert.Contains(t, said, "the bundle has no charts of components")
}

func TestComponents_RefusesUnknown(t *testing.T) {
	for _, wrong := range []string{"everything", "vpa,nginx", "vpa;reboot"} {
		said, code := script(t, []string{"COMPONENTS=" + wrong, "CLUSTER_NAME=a", "AGENT_TOKEN=" + unusedToken + "@cp.example.com"}, "install", "--dry-run")
		assert.Equal(t, 2, code, said)
		assert.Contains(t, said, "COMPONENTS="+wrong+": use none, minimal, default or full, or some of storage cert-manager")
	}
}

// jobKubectl is a kubectl whose Job says what the file job has, and ends as the file conditions has
// it.
const jobKubectl = `kubectl() {
  echo "$*" >>"$PIPEOPS_INSTALL_STATE/calls"
  case "$*" in
    *"get secrets"*) cat "$PIPEOPS_INSTALL_STATE/present" ;;
    *"get job/"*) cat "$PIPEOPS_INSTALL_STATE/conditions" ;;
    *"get pods"*) echo pod-1 ;;
    *" logs "*) cat "$PIPEOPS_INSTALL_STATE/job" ;;
    *" -f -"*) cat >"$PIPEOPS_INSTALL_STATE/applied" ; cp "$PIPEOPS_INSTALL_STATE/after" "$PIPEOPS_INSTALL_STATE/present" ;;
  esac
}
kube=(kubectl); decided=existing; namespaces_known="default=;monitoring=;vpa=;"
`

func jobFiles(t *testing.T, conditions string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, content := range map[string]string{
		"present": "loki\n", "after": "loki\nvpa\ngrafana\n", "conditions": conditions, "job": "install vpa\ninstall grafana\n",
		"agent.yaml": "properties:\n  image:\n    type: string\nspec:\n  image: pipeops/agent:v1.2.3\n",
	} {
		add(t, dir, name, content)
	}
	return dir
}

// TestComponents_Job: the Job's rights end with it; what was there before is not recorded as ours.
func TestComponents_Job(t *testing.T) {
	dir := jobFiles(t, "SuccessCriteriaMet Complete ")
	said, code := functions(t, []string{"PIPEOPS_INSTALL_STATE=" + dir, "COMPONENTS=vpa,grafana", "PIPEOPS_MIRROR=https://mirror.example.com/"},
		jobKubectl+"components_start; components_finish")
	require.Zero(t, code, said)
	assert.Contains(t, said, "    install vpa\n    install grafana\n")
	assert.Equal(t, 1, strings.Count(said, "install vpa"), "what the Job says is said once")
	applied := string(read(t, filepath.Join(dir, "applied")))
	assert.Contains(t, applied, `args: ["component", "install", "--set", "vpa,grafana", "--mirror", "https://mirror.example.com/charts"]`)
	assert.Contains(t, applied, "image: pipeops/agent:v1.2.3\n")
	assert.Equal(t, []string{
		"components-before loki", "namespace local-path-storage", "namespace cert-manager", "namespace nginx-ingress", "namespace istio-system",
		"component grafana", "component vpa", "components-done vpa,grafana",
	}, strings.Split(strings.TrimSpace(string(read(t, filepath.Join(dir, "installed")))), "\n"))
	calls := string(read(t, filepath.Join(dir, "calls")))
	_, after, _ := strings.Cut(calls, " -f -\n")
	assert.Contains(t, after, "delete clusterrolebinding pipeops-components:pipeops")

	said, code = functions(t, []string{"PIPEOPS_INSTALL_STATE=" + dir}, jobKubectl+"remains=(); uninstall_components")
	require.Zero(t, code, said)
	assert.Contains(t, string(read(t, filepath.Join(dir, "applied"))), `args: ["component", "delete", "grafana", "vpa"]`)
}

// TestComponents_NamesFailure: a failed Job's rights are removed, too.
func TestComponents_NamesFailure(t *testing.T) {
	dir := jobFiles(t, "FailureTarget Failed ")
	add(t, dir, "job", "install vpa\nerror: component vpa: the repository answered 404\n")
	said, code := functions(t, []string{"PIPEOPS_INSTALL_STATE=" + dir, "COMPONENTS=vpa"}, jobKubectl+"components_start; components_finish")
	assert.Equal(t, 12, code, said)
	assert.Contains(t, said, "why: error: component vpa: the repository answered 404")
	assert.Contains(t, said, "COMPONENTS=none leaves them out")
	_, after, _ := strings.Cut(string(read(t, filepath.Join(dir, "calls"))), " -f -\n")
	assert.Contains(t, after, "delete clusterrolebinding pipeops-components:pipeops")
	assert.NotContains(t, string(read(t, filepath.Join(dir, "installed"))), "components-done")
}

// TestComponents_ChartsOfBundle: the charts are verified, and passed to the Job in config maps.
func TestComponents_ChartsOfBundle(t *testing.T) {
	dir, bundle := jobFiles(t, "Complete "), t.TempDir()
	add(t, bundle, "charts/vertical-pod-autoscaler-0.11.0.tgz", "chart")
	add(t, bundle, "SHA256SUMS", "5b7eb2eb6b01f6cebc0a9d7a5a5d8d7d4ebb0b1b0c8c0a5e1c5e4e7e3e8f1f2a  charts/vertical-pod-autoscaler-0.11.0.tgz\n")
	settings := []string{"PIPEOPS_INSTALL_STATE=" + dir, "COMPONENTS=vpa", "PIPEOPS_BUNDLE=" + bundle}
	said, code := functions(t, settings, jobKubectl+"components_start; components_finish")
	assert.Equal(t, 6, code, said)
	assert.Contains(t, said, "charts/vertical-pod-autoscaler-0.11.0.tgz is not what its publisher made")

	said, code = functions(t, settings, `sum="$(sha256sum "$PIPEOPS_BUNDLE"/charts/*.tgz)"; echo "${sum%% *}  charts/vertical-pod-autoscaler-0.11.0.tgz" >"$PIPEOPS_BUNDLE/SHA256SUMS"
`+jobKubectl+"components_start; components_finish")
	require.NotZero(t, code, "the archive that did not fit is gone: "+said)
	add(t, bundle, "charts/vertical-pod-autoscaler-0.11.0.tgz", "chart")
	said, code = functions(t, settings, `sum="$(sha256sum "$PIPEOPS_BUNDLE"/charts/*.tgz)"; echo "${sum%% *}  charts/vertical-pod-autoscaler-0.11.0.tgz" >"$PIPEOPS_BUNDLE/SHA256SUMS"
`+jobKubectl+"components_start; components_finish")
	require.Zero(t, code, said)
	applied := string(read(t, filepath.Join(dir, "applied")))
	assert.Contains(t, applied, `"--charts", "/charts"]`)
	assert.Contains(t, applied, "  vertical-pod-autoscaler-0.11.0.tgz: Y2hhcnQ=\n")
	assert.Contains(t, applied, "sources: [{configMap: {name: pipeops-components-vertical-pod-autoscaler-0.11.0}}]")
}
