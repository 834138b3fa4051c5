package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

// TestMonitoring_FreshCluster from the components to what a Runner reads through the tunnel: an
// App's CPU, memory and requests, its certificate, a log line and its cost. An alert reaches a
// Runner over RabbitMQ. The charts are the real ones, and so are Prometheus with all that its chart
// has, and Loki. Stand-ins for Alloy, Grafana and OpenCost run in their pods.
func TestMonitoring_FreshCluster(t *testing.T) {
	suite.Release(t, "monitoring, end to end")
	load(t, upstream.Loki)
	load(t, upstream.Monitoring...)
	wanted := map[string]component{"prometheus": watchful(t), "loki": loki(t), "grafana": grafana(t), "opencost": opencost(t)}
	installMonitoring(t, wanted)
	removeApp(t, "observed")
	removeApp(t, "broken")
	pipeops(t, "deploy", agentName, "observed", "--image", image, "--port", "8080", "--metrics", "8080/metrics", "--public", "--wait=2m")
	heard := listen(t)

	t.Run("components", func(t *testing.T) { componentsBecomeReady(t, wanted) })
	t.Run("machine", machinesAreWatched)
	t.Run("usage", func(t *testing.T) { usageIsReadBack(t, appPod(t, "observed").Status.PodIP) })
	t.Run("log", func(t *testing.T) { theLogOfAPodThatIsGoneIsReadBack(t, "observed") })
	t.Run("cost", func(t *testing.T) {
		assert.Regexp(t, namespace+`\s+observed\s`, pipeops(t, "cost", agentName, "--by", "app"))
	})
	t.Run("certificate", certificateIsReadBack)
	t.Run("alert", func(t *testing.T) { anAlertReachesARunner(t, heard) })
}

// loki is of the module's version. The test cluster has no volumes.
func loki(t *testing.T) component {
	t.Helper()
	return component{Mode: "always", Values: map[string]any{
		"loki": map[string]any{
			"loki":         map[string]any{"image": map[string]any{"tag": upstream.LokiVersion}},
			"singleBinary": map[string]any{"persistence": map[string]any{"enabled": false}},
		},
		"alloy": map[string]any{
			"image":          standIn(t, "alloy"),
			"configReloader": map[string]any{"image": map[string]any{"tag": upstream.ConfigReloaderVersion}},
		},
	}}
}

func grafana(t *testing.T) component {
	t.Helper()
	return component{Mode: "always", Values: map[string]any{"grafana": map[string]any{
		"image": standIn(t, "grafana"), "persistence": map[string]any{"enabled": false},
		"sidecar": map[string]any{"image": standIn(t, "k8s-sidecar")},
	}}}
}

func opencost(t *testing.T) component {
	t.Helper()
	return component{Mode: "always", Values: map[string]any{"opencost": map[string]any{"opencost": map[string]any{
		"exporter": map[string]any{"image": standIn(t, "opencost")}, "ui": map[string]any{"image": standIn(t, "opencost-ui")},
	}}}}
}

// standIn loads the image of a stand-in, and returns it as charts name images.
func standIn(t *testing.T, program string) map[string]any {
	t.Helper()
	const registry = "apps.test"
	ref, err := sys.Cluster.LoadProgram(t.Context(), cluster.Program{
		Package: "./test/apps/standin", Name: program, Ref: registry + "/stand-in-for-" + program,
	})
	require.NoError(t, err)
	repository, tag, _ := strings.Cut(strings.TrimPrefix(ref, registry+"/"), ":")
	return map[string]any{"registry": registry, "repository": repository, "tag": tag}
}

// componentsBecomeReady: all their pods run.
func componentsBecomeReady(t *testing.T, wanted map[string]component) {
	await.Until(t, "component list shows them ready", func() bool {
		list := components(t.Context(), t, "list")
		for name := range wanted {
			if !regexp.MustCompile(`(?m)^` + name + `\s+ready`).MatchString(list) {
				return false
			}
		}
		return true
	})
}

// watchful is a Prometheus that looks often and keeps nothing, and whose alerts fire at once.
func watchful(t *testing.T) component {
	t.Helper()
	return component{Mode: "always", Values: map[string]any{"prometheus": map[string]any{
		"server": map[string]any{
			"global":           map[string]any{"scrape_interval": "5s", "scrape_timeout": "5s", "evaluation_interval": "1s"},
			"persistentVolume": map[string]any{"enabled": false},
		},
		"alertmanager": map[string]any{
			"image":       map[string]any{"tag": upstream.AlertmanagerVersion},
			"persistence": map[string]any{"enabled": false},
			"config":      map[string]any{"route": map[string]any{"group_wait": "1s", "group_interval": "1s"}},
		},
		"serverFiles": map[string]any{"alerting_rules.yml": monitoringtest.RulesThatFireAtOnce(t)},
	}}}
}

// installMonitoring installs components with Prometheus, for which the agent opens its port.
func installMonitoring(t *testing.T, wanted map[string]component) {
	t.Helper()
	t.Cleanup(func() {
		await.Until(t, "the agent closes its port of metrics", func() bool { return !accepts(t, serviceAddress(t, "pipeops", "pipeops-agent-metrics")) })
	})
	installComponents(t, wanted)
	await.Until(t, "the agent opens its port of metrics", func() bool { return accepts(t, serviceAddress(t, "pipeops", "pipeops-agent-metrics")) })
}

// machinesAreWatched by node_exporter, which Prometheus finds.
func machinesAreWatched(t *testing.T) {
	at := "http://" + serviceAddress(t, "monitoring", "prometheus-server") + monitoringtest.Query + "?query=node_memory_MemTotal_bytes"
	await.Until(t, "Prometheus knows the machine's memory", func() bool {
		resp, err := http.Get(at)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		return err == nil && strings.Contains(string(text), `"__name__":"node_memory_MemTotal_bytes"`)
	})
}

func usageIsReadBack(t *testing.T, pod string) {
	await.Until(t, "CPU, memory, requests and restarts are there", func() bool {
		resp, err := http.Get("http://" + pod + ":8080/")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		var history runnerapi.MetricsHistory
		require.NoError(t, json.Unmarshal([]byte(pipeops(t, "metrics", agentName, "observed", "--since", "1h", "-o", "json")), &history))
		used := map[string]bool{}
		for _, s := range history.Series {
			used[s.Metric] = slices.ContainsFunc(s.Values, func(v *float64) bool { return v != nil && (*v > 0 || s.Metric == runnerapi.MetricRestarts) })
		}
		return used[runnerapi.MetricCPU] && used[runnerapi.MetricMemory] && used[runnerapi.MetricRequests] && used[runnerapi.MetricRestarts]
	})
}

func certificateIsReadBack(t *testing.T) {
	await.Until(t, "the gateway has the certificate", func() bool {
		return slices.ContainsFunc(listRoutes(t), func(r runnerapi.Route) bool {
			return r.App == "observed" && r.Certificate == runnerapi.CertificateReady
		})
	})
}

func anAlertReachesARunner(t *testing.T, heard *listener) {
	_ = refused(t, exitFailed, "deploy", agentName, "broken", "--image", "registry.invalid/none:1")
	await.Until(t, "a Runner hears of the alert", func() bool {
		for _, e := range heard.all() {
			if a, err := e.Alert(); err == nil && e.Type == announce.AlertFiring && a.App == "broken" {
				assert.Equal(t, namespace, a.Namespace)
				return true
			}
		}
		return false
	})
	assert.Contains(t, pipeops(t, "alerts", agentName), "broken", "and Prometheus has it")
}

// serviceAddress returns the address of a Service's first port.
func serviceAddress(t *testing.T, namespace, name string) string {
	t.Helper()
	s, err := sys.Kube.Clientset.CoreV1().Services(namespace).Get(context.Background(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(s.Spec.Ports[0].Port))
}

func accepts(t *testing.T, address string) bool {
	t.Helper()
	conn, err := (&net.Dialer{Timeout: 3 * time.Second}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return false
	}
	return assert.NoError(t, conn.Close())
}

// appPod returns the only pod of an App, which has an address.
func appPod(t *testing.T, app string) *corev1.Pod {
	t.Helper()
	pods, err := sys.Kube.Clientset.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "pipeops.io/app=" + app})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	return &pods.Items[0]
}

// listRoutes returns the agent's routes as a Runner sees them.
func listRoutes(t *testing.T) []runnerapi.Route {
	t.Helper()
	var list struct{ Items []runnerapi.Route }
	require.NoError(t, json.Unmarshal([]byte(pipeops(t, "routes", agentName, "-o", "json")), &list))
	return list.Items
}
