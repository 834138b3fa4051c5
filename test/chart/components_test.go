package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const metricsAPI = "APIService v1beta1.metrics.k8s.io"

// TestMetricsServerWithoutACluster says what it assumes, or is told.
func TestMetricsServerWithoutACluster(t *testing.T) {
	text := func(args ...string) string {
		return helm(t, append([]string{"template", "agent", agentChart, "--namespace", "elsewhere", "--skip-tests",
			"--values", agentChart + "/ci/components.yaml"}, args...)...)
	}
	const assumes = "# Rendered without a cluster to ask, so it is assumed that it has no metrics API yet"
	assumed := text()
	assert.Contains(t, assumed, assumes)
	assert.Contains(t, assumed, "image: registry.k8s.io/metrics-server/metrics-server:v")
	told := text("--set", "components.metricsServer.install=always")
	assert.NotContains(t, told, assumes)
	assert.Contains(t, told, "name: v1beta1.metrics.k8s.io")
	assert.NotContains(t, text("--set", "components.metricsServer.install=never"), "metrics.k8s.io/v1beta1")
	assert.NotContains(t, text("--set", "components.metricsServer.install=never"), "name: v1beta1.metrics.k8s.io")
	off := text("--set", "agent.autoInstallComponents=false,components.metricsServer.install=always")
	assert.NotContains(t, off, "name: v1beta1.metrics.k8s.io")

	digest := "sha256:" + strings.Repeat("0a", 32)
	assert.Contains(t, text("--set", "components.metricsServer.image.digest="+digest), "image: registry.k8s.io/metrics-server/metrics-server@"+digest)
}

// TestMetricsServerHasFewRights, a pod that restricted namespaces admit, and names
// that nobody else's has.
func TestMetricsServerHasFewRights(t *testing.T) {
	all := render(t, agentChart, "components.yaml")
	for key, o := range parseMetricsServer(t) {
		if o.GetKind() == "ClusterRole" || o.GetKind() == "ClusterRoleBinding" || o.GetKind() == "RoleBinding" {
			assert.NotContains(t, all, key, "upstream's own")
		}
	}
	rules := field[[]any](t, all["ClusterRole pipeops:metrics-server"], "rules")
	require.Len(t, rules, 2)
	for _, rule := range rules {
		assert.Subset(t, []any{"get", "list", "watch"}, rule.(map[string]any)["verbs"])
		assert.Subset(t, []any{"nodes/metrics", "pods", "nodes"}, rule.(map[string]any)["resources"])
	}
	security := container(t, all["Deployment metrics-server"])["securityContext"].(map[string]any)
	assert.Equal(t, false, security["allowPrivilegeEscalation"])
	assert.Equal(t, true, security["runAsNonRoot"])
	assert.Equal(t, true, security["readOnlyRootFilesystem"])
	assert.Equal(t, "RuntimeDefault", security["seccompProfile"].(map[string]any)["type"])
	assert.Equal(t, []any{"ALL"}, security["capabilities"].(map[string]any)["drop"])
	assert.Equal(t, "metrics-server", field[string](t, all[metricsAPI], "spec", "service", "name"))
	assert.Equal(t, "pipeops", field[string](t, all[metricsAPI], "spec", "service", "namespace"))
}

func parseMetricsServer(t *testing.T) objects {
	t.Helper()
	manifest, err := deployments.MetricsServer()
	require.NoError(t, err)
	return parse(t, manifest)
}

// TestMetricsServerIsUpstreams compares what the chart is made of with the module
// that test/cluster/metricsserver pins.
func TestMetricsServerIsUpstreams(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/metrics-server")
	cmd.Dir = filepath.Join(harness.Root(), "test", "cluster", "metricsserver")
	out, err := cmd.Output()
	require.NoError(t, err)
	var module struct{ Dir, Version string }
	require.NoError(t, json.Unmarshal(out, &module))
	for ours, theirs := range map[string]string{
		"rbac": "base/rbac", "service": "base/service", "deployment": "base/deployment", "apiservice": "base/apiservice",
		"release": "components/release/kustomization",
	} {
		file := filepath.Join(harness.Root(), "deployments", "components", "metrics-server", ours+".yaml")
		want, err := os.ReadFile(filepath.Join(module.Dir, "manifests", filepath.FromSlash(theirs)+".yaml"))
		require.NoError(t, err)
		got, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Equal(t, string(want), string(got), "%s is not that of metrics-server %s: copy it from the module and run `go generate ./deployments/...`", file, module.Version)
	}
	image := container(t, parseMetricsServer(t)["Deployment metrics-server in kube-system"])["image"]
	assert.Equal(t, "registry.k8s.io/metrics-server/metrics-server:"+module.Version, image)
}

// withComponents has the documented installation bring what the cluster lacks, with
// the metrics-server that the cluster's registry has.
func withComponents(t *testing.T, apiURL string) string {
	t.Helper()
	return documented(t, "install", exampleURL, apiURL, "--wait", "--wait --timeout 3m --values "+agentChart+"/ci/components.yaml"+
		" --set components.metricsServer.kubeletInsecureTLS=true,components.metricsServer.image.repository=cluster.test/metrics-server,components.metricsServer.image.tag=built")
}

// TestMetricsServerOfAnotherIsLeftAlone: the test's cluster has one by kubectl apply.
func TestMetricsServerOfAnotherIsLeftAlone(t *testing.T) {
	suite.Release(t, "further lives of the charts")
	sys := system(t)
	const uid = "kubectl get apiservice v1beta1.metrics.k8s.io -o jsonpath='{.metadata.uid} {.spec} {.metadata.annotations}'"
	before := shell(t, uid)
	require.Contains(t, before, "kube-system")
	t.Cleanup(func() { removeAgent(t, "apart") })
	said := shell(t, in("apart", withComponents(t, sys.APIURL())))
	assert.Contains(t, said, "The cluster has a metrics API already, which is left as it is")
	assert.Empty(t, shell(t, "kubectl -n apart get deployment metrics-server --ignore-not-found"))
	assert.Equal(t, before, shell(t, uid))

	out, err := runShell(t.Context(), in("apart", upgradeWith(t, "components.metricsServer.install=always")))
	require.Error(t, err, "what is told to be ours and is not, Helm refuses")
	assert.Contains(t, out, "v1beta1.metrics.k8s.io")
	assert.Contains(t, out, "ownership")
	assert.Equal(t, before, shell(t, uid))
}

// upgradeWith is the documented upgrade with a value of its own.
func upgradeWith(t *testing.T, set string) string {
	t.Helper()
	return documented(t, "upgrade", "--reset-then-reuse-values", "--reset-then-reuse-values --set "+set)
}

// TestMetricsServerOfTheRelease comes, stays over an upgrade, and goes with it.
func TestMetricsServerOfTheRelease(t *testing.T) {
	suite.Release(t, "further lives of the charts")
	sys := system(t)
	withoutMetrics(t)
	t.Cleanup(func() {
		if t.Failed() { // else it is gone
			removeAgent(t, "measured")
		}
	})
	said := shell(t, in("measured", withComponents(t, sys.APIURL())))
	assert.Contains(t, said, "The cluster's metrics API comes with this release")
	awaitFigures(t)

	const state = `kubectl get apiservice v1beta1.metrics.k8s.io -o jsonpath={.metadata.uid}; kubectl -n measured get pods -l k8s-app=metrics-server -o name`
	before := shell(t, state)
	shell(t, in("measured", upgradeWith(t, "agent.logLevel=debug")))
	assert.Equal(t, before, shell(t, state), "an upgrade keeps it")

	// Somebody puts another in its place: nothing is done before a person has decided.
	const serve = `kubectl patch apiservice v1beta1.metrics.k8s.io --type merge -p '{"spec":{"service":{"namespace":"%s"}}}'`
	shell(t, fmt.Sprintf(serve, "kube-system"))
	out, err := runShell(t.Context(), in("measured", documented(t, "upgrade")))
	require.Error(t, err)
	assert.Contains(t, out, "but kube-system/metrics-server serves it now (fix:")
	shell(t, fmt.Sprintf(serve, "measured"))

	shell(t, in("measured", documented(t, "uninstall")+"kubectl delete crd apps.pipeops.io"))
	left := shell(t, "kubectl get apiservices,clusterroles,clusterrolebindings -o name; kubectl -n kube-system get rolebindings -o name")
	for _, gone := range []string{"apiservice.apiregistration.k8s.io/v1beta1.metrics.k8s.io", "pipeops:", "pipeops-metrics-server"} {
		assert.NotContains(t, left, gone)
	}
	assert.Contains(t, left, "system:metrics-server", "another's roles are left")
}

// withoutMetrics takes the metrics API from the cluster until the test ends.
func withoutMetrics(t *testing.T) {
	t.Helper()
	saved := filepath.Join(t.TempDir(), "apiservice.json")
	shell(t, `kubectl get apiservice v1beta1.metrics.k8s.io -o json >`+saved+"; kubectl delete apiservice v1beta1.metrics.k8s.io")
	t.Cleanup(func() {
		out, err := runShell(context.WithoutCancel(t.Context()), "kubectl delete apiservice v1beta1.metrics.k8s.io --ignore-not-found; kubectl create -f "+saved)
		assert.NoError(t, err, out)
	})
}

// awaitFigures waits until the metrics API has figures of the node.
func awaitFigures(t *testing.T) {
	t.Helper()
	eventually(t, "kubectl top has figures of the node", func(ctx context.Context) error {
		out, err := runShell(ctx, "kubectl top nodes --no-headers")
		if err != nil || strings.TrimSpace(out) == "" {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}
