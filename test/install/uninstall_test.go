package install

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeKubectl answers by files in its folder: "fails" has a pattern of the calls that fail,
// "in-NAMESPACE" what its template would print of one, "crd" and "apps" those, "agent" what its
// template would of the agent, "logs" what that has logged, "report" what that finds itself. It
// notes down every call. TestInstall_Offline does it with the real one.
const fakeKubectl = `#!/bin/bash
cd "${0%/*}" && echo "$*" >>calls
if [[ -s fails && $* =~ $(<fails) ]]; then
  echo "Unable to connect to the server: FAKE" >&2
  exit 1
fi
case "$*" in
  *"get customresourcedefinitions/"*) cat crd ;;
  *"get apps.pipeops.io "*) cat apps ;;
  *api-resources*) printf '%s\n' configmaps events ingresses.networking.k8s.io apps.pipeops.io ;;
  "-n "*" get configmaps,ingresses.networking.k8s.io -o "*) [[ ! -e in-$2 ]] || cat "in-$2" ;;
  *" get deployments,replicasets,pods "*) cat agent ;;
  *" logs "*) [[ ! -e logs ]] || cat logs ;;
  *" exec "*)
    cat report
    ! grep -q ^failed report || { echo "command terminated with exit code 1" >&2; exit 1; }
    ;;
  *"get --raw "*) ;;
  *" get namespaces -o "*) ;;
  *" get "*) exit 3 ;;
  "delete "*"-f -") cat >/dev/null ;;
esac
`

// existingCluster is an installation into somebody's cluster, of the fake kubectl.
type existingCluster struct {
	dir      string
	settings []string
}

func newExistingCluster(t *testing.T, files map[string]string) existingCluster {
	t.Helper()
	c := existingCluster{dir: t.TempDir()}
	kubectl := filepath.Join(c.dir, "kubectl")
	require.NoError(t, os.WriteFile(kubectl, []byte(fakeKubectl), 0o700))
	all := map[string]string{
		"crd": "customresourcedefinition.apiextensions.k8s.io/apps.pipeops.io\n", "apps": "",
		"state/installed":  "agent " + kubectl + "\nnamespace pipeops\nnamespace production\n",
		"state/agent.yaml": "kind: Namespace\n",
	}
	maps.Copy(all, files)
	for name, content := range all {
		add(t, c.dir, name, content)
	}
	return c
}

// with is the same one, with settings beside the usual.
func (c existingCluster) with(settings ...string) existingCluster {
	c.settings = settings
	return c
}

// script runs install.sh for that installation.
func (c existingCluster) script(t *testing.T, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", append([]string{"../../scripts/install.sh"}, args...)...)
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir, "PIPEOPS_WAIT=0", "PIPEOPS_INSTALL_STATE=" + c.dir + "/state", "PIPEOPS_INSTALL_LOG=" + c.dir + "/log",
	}, c.settings...)
	said, code = outcome(t, cmd)
	noteSaid(said)
	return said, code
}

// deletions are the calls of kubectl that deleted something.
func (c existingCluster) deletions(t *testing.T) (calls string) {
	t.Helper()
	for line := range strings.Lines(string(read(t, filepath.Join(c.dir, "calls")))) {
		if strings.Contains(line, "delete ") {
			calls += line
		}
	}
	return calls
}

func (c existingCluster) installed() bool {
	_, err := os.Stat(filepath.Join(c.dir, "state/installed"))
	return err == nil
}

func TestUninstall_KeepsUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		fails     string
		code      int
		says      []string
		untouched bool
	}{
		"the definition of Apps": {fails: "customresourcedefinitions", code: 7, untouched: true,
			says: []string{"does not tell: whether Apps are known here", "Unable to connect to the server: FAKE", "run it again"}},
		"Apps": {fails: "get apps.pipeops.io", code: 7, untouched: true,
			says: []string{"does not tell: Apps", "Unable to connect to the server: FAKE", "get apps.pipeops.io --all-namespaces"}},
		"kinds": {fails: "api-resources", code: 11,
			says: []string{"- the namespaces, as the cluster does not tell what can be in them: Unable to connect", "run it again"}},
		"one namespace": {fails: "-n production get", code: 11,
			says: []string{"- the namespace production, as the cluster does not tell what is in it: Unable to connect", "    namespaces pipeops\n", "run it again"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newExistingCluster(t, map[string]string{"fails": c.fails})
			said, code := cluster.script(t, "uninstall", "--yes")
			assert.Equal(t, c.code, code, said)
			for _, words := range c.says {
				assert.Contains(t, said, words)
			}
			assert.NotContains(t, said, "unexpectedly")
			deletions := cluster.deletions(t)
			assert.NotContains(t, deletions, "production")
			if c.untouched {
				assert.Empty(t, deletions)
			}
			assert.True(t, cluster.installed(), "the list stays")

			add(t, cluster.dir, "fails", "")
			said, code = cluster.script(t, "uninstall", "--yes")
			assert.Zero(t, code, said)
			assert.Contains(t, cluster.deletions(t), "delete namespace pipeops production")
			assert.False(t, cluster.installed())
		})
	}
}

func TestUninstall_KeepsOthers(t *testing.T) {
	const kubernetes = "ConfigMap/kube-root-ca.crt\nServiceAccount/default\nConfigMap/pipeops-removed-apps|pipeops\nSecret/pipeops-agent-identity\n" +
		"RoleBinding/pipeops-agent|pipeops\nControllerRevision/op-1|pipeops\nReplicaSet/web-7f<Deployment\nPod/web-7f-x<ReplicaSet\nService/web|pipeops<App\n"
	cluster := newExistingCluster(t, map[string]string{"in-pipeops": kubernetes})
	said, code := cluster.script(t, "uninstall", "--yes")
	assert.Zero(t, code, said)
	assert.Contains(t, cluster.deletions(t), "delete namespace pipeops production")
	for _, theirs := range []string{
		"Ingress/shop", "ServiceAccount/ci", "Role/ci", "NetworkPolicy/deny", "HorizontalPodAutoscaler/shop|Helm", "PodMonitor/web", "Secret/values|pipeops",
		"ConfigMap/settings<Tenant", "ServiceAccount/default-2", "Lease/a-pipeops-agent",
	} {
		t.Run(theirs, func(t *testing.T) {
			t.Parallel()
			cluster := newExistingCluster(t, map[string]string{"in-production": kubernetes + theirs + "\n"})
			said, code := cluster.script(t, "uninstall", "--yes")
			assert.Zero(t, code, said)
			name, _, _ := strings.Cut(strings.ReplaceAll(theirs, "<", "|"), "|")
			assert.Contains(t, said, "kept the namespace production: it has "+name+"\n")
			assert.NotContains(t, cluster.deletions(t), "production")
		})
	}
}
