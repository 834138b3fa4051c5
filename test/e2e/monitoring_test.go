package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
	"github.com/pipeops/pipeops-vm-agent/test/upstream"
)

// monitoringComponents are installed whatever memory the test cluster has.
const monitoringComponents = `components:
  prometheus: {mode: always}
  loki: {mode: always}
  opencost: {mode: always}
`

// TestAFreshClusterIsMonitored from the components to what a Runner reads through the tunnel: an
// App's CPU, memory and requests, its certificate, a log line and its cost. An alert reaches a
// Runner over RabbitMQ. The charts are the real ones, and so is kube-state-metrics. Debian's
// Prometheus and Alertmanager run beside the cluster, and fakes stand in for Loki and OpenCost.
func TestAFreshClusterIsMonitored(t *testing.T) {
	suite.Release(t, "monitoring, end to end")
	monitoringtest.NeedPrograms(t)
	load(t, upstream.KubeStateMetrics)
	installMonitoring(t, monitoringComponents, "opencost", "loki", "prometheus")
	removeApp(t, "observed")
	removeApp(t, "broken")
	pipeops(t, "deploy", agentName, "observed", "--image", image, "--port", "8080", "--metrics", "8080/metrics", "--public", "--wait=2m")
	heard := listen(t)

	agents := serviceAddress(t, "pipeops", "pipeops-agent-metrics")
	await.Until(t, "the agent opens its port of metrics", func() bool { return accepts(t, agents) })
	tokenFile := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(tokenFile, alertsToken(t), 0o600))
	alertmanager := monitoringtest.StartAlertmanager(t, "http://"+agents+"/alerts", tokenFile)
	app := appPod(t, "observed")
	prometheus := monitoringtest.StartPrometheusAt(t, sys.HostIP(), alertmanager, map[string]monitoringtest.Target{
		"pipeops-agent": {Address: agents, Labels: map[string]string{
			"__meta_kubernetes_pod_label_app_kubernetes_io_name": "pipeops-agent", "__meta_kubernetes_pod_container_port_name": "metrics",
		}},
		"pods":       {Address: app.Status.PodIP + ":8080", Labels: described(app)},
		"monitoring": stateMetrics(t),
	}, kubelet(t, app.Spec.NodeName))
	standIn(t, "prometheus-server", "http", prometheus)
	loki, opencost := fakeLoki(t), fakeOpenCost(t)
	standIn(t, "loki", "http-metrics", loki)
	standIn(t, "opencost", "http", opencost)

	t.Run("usage", func(t *testing.T) { usageIsReadBack(t, app.Status.PodIP) })
	t.Run("log", func(t *testing.T) {
		assert.Contains(t, pipeops(t, "logs", agentName, "observed", "--since", "24h"), "a line of a pod that is gone")
	})
	t.Run("cost", func(t *testing.T) {
		assert.Regexp(t, namespace+`\s+observed\s`, pipeops(t, "cost", agentName, "--by", "app"))
	})
	t.Run("certificate", certificateIsReadBack)
	t.Run("alert", func(t *testing.T) { anAlertReachesARunner(t, heard) })
}

// installMonitoring installs components with Prometheus, for which the agent opens its port.
func installMonitoring(t *testing.T, settings string, names ...string) {
	t.Helper()
	t.Cleanup(func() {
		await.Until(t, "the agent closes its port of metrics", func() bool { return !accepts(t, serviceAddress(t, "pipeops", "pipeops-agent-metrics")) })
	})
	installComponents(t, settings, names...)
}

// installComponents runs `pipeops-agent component` as the cluster's owner would, for the components
// that settings name.
func installComponents(t *testing.T, settings string, names ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "components.yaml")
	require.NoError(t, os.WriteFile(file, []byte(settings), 0o600))
	began := time.Now()
	install := []string{"install", "-f", file, "--charts", filepath.Join(harness.Root(), "..", "shared", "charts")}
	t.Cleanup(func() { components(context.Background(), t, append([]string{"delete"}, names...)...) })
	assert.Regexp(t, names[0]+`\s+install`, components(t.Context(), t, install...))
	t.Logf("installed after %s", time.Since(began).Round(time.Second))
	began = time.Now()
	assert.Regexp(t, names[0]+`\s+keep`, components(t.Context(), t, install...))
	t.Logf("the second run took %s", time.Since(began).Round(time.Second))
}

func components(ctx context.Context, t *testing.T, args ...string) string {
	t.Helper()
	out, err := sys.Agent(ctx, nil, append([]string{"component", "--kubeconfig", sys.Cluster.Kubeconfig()}, args...)...)
	require.NoError(t, err)
	return out
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

func alertsToken(t *testing.T) []byte {
	t.Helper()
	secret, err := sys.Kube.Clientset.CoreV1().Secrets("monitoring").Get(t.Context(), "pipeops-alerts", metav1.GetOptions{})
	require.NoError(t, err)
	return secret.Data["token"]
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

// standIn has a component's Service lead to an address of this machine.
func standIn(t *testing.T, name, port, address string) {
	t.Helper()
	services := sys.Kube.Clientset.CoreV1().Services("monitoring")
	_, err := services.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"selector":null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	host, number, err := net.SplitHostPort(address)
	require.NoError(t, err)
	n, err := net.LookupPort("tcp", number)
	require.NoError(t, err)
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name + "-stand-in", Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{host}}},
		Ports:       []discoveryv1.EndpointPort{{Name: &port, Port: ptr.To(int32(n))}},
	}
	all := sys.Kube.Clientset.DiscoveryV1().EndpointSlices("monitoring")
	_, err = all.Create(t.Context(), slice, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, all.Delete(context.Background(), slice.Name, metav1.DeleteOptions{})) })
}

func fakeLoki(t *testing.T) (address string) {
	t.Helper()
	f := monitoringtest.StartAt(t, sys.HostIP())
	f.Answer(monitoringtest.LokiRange, func(q url.Values) any {
		labels := map[string]string{"namespace": namespace, "app": "observed", "container": "observed", "pod": "observed-gone"}
		line := monitoringtest.Line{At: time.Now().Add(-time.Hour), Text: "a line of a pod that is gone"}
		return monitoringtest.Streams(monitoringtest.Log(q, labels, []monitoringtest.Line{line}))
	})
	return hostOf(t, f)
}

func fakeOpenCost(t *testing.T) (address string) {
	t.Helper()
	f := monitoringtest.StartAt(t, sys.HostIP())
	f.Answer(monitoringtest.Allocation, func(url.Values) any { return monitoringtest.Allocations(namespace + "/observed") })
	return hostOf(t, f)
}

func hostOf(t *testing.T, f *monitoringtest.Fake) string {
	t.Helper()
	at, err := url.Parse(f.URL)
	require.NoError(t, err)
	return at.Host
}

// appPod returns the only pod of an App, which has an address.
func appPod(t *testing.T, app string) *corev1.Pod {
	t.Helper()
	pods, err := sys.Kube.Clientset.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "pipeops.io/app=" + app})
	require.NoError(t, err)
	require.Len(t, pods.Items, 1)
	return &pods.Items[0]
}

// kubelet returns the job that scrapes what a node's containers use, as the chart of Prometheus has
// it: through the API server.
func kubelet(t *testing.T, node string) any {
	t.Helper()
	config := rest.CopyConfig(sys.Kube.Config)
	require.NoError(t, rest.LoadTLSFiles(config))
	file := func(name string, data []byte) string {
		path := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.WriteFile(path, data, 0o600))
		return path
	}
	server, err := url.Parse(config.Host)
	require.NoError(t, err)
	return map[string]any{
		"job_name": "kubernetes-nodes-cadvisor", "scheme": "https", "scrape_timeout": "10s", "scrape_interval": "10s",
		"metrics_path":   "/api/v1/nodes/" + node + "/proxy/metrics/cadvisor",
		"static_configs": []any{map[string]any{"targets": []string{server.Host}}},
		"tls_config": map[string]any{
			"ca_file": file("ca.crt", config.CAData), "cert_file": file("client.crt", config.CertData), "key_file": file("client.key", config.KeyData),
			"server_name": config.ServerName,
		},
	}
}

// stateMetrics describes kube-state-metrics as Prometheus would find it, by its Service.
func stateMetrics(t *testing.T) monitoringtest.Target {
	t.Helper()
	const name = "prometheus-kube-state-metrics"
	s, err := sys.Kube.Clientset.CoreV1().Services("monitoring").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return monitoringtest.Target{Address: serviceAddress(t, "monitoring", name), Labels: map[string]string{
		"__meta_kubernetes_namespace": s.Namespace, "__meta_kubernetes_service_name": s.Name,
		"__meta_kubernetes_service_annotation_prometheus_io_scrape": s.Annotations["prometheus.io/scrape"],
	}}
}

// described returns the labels by which Prometheus would find a pod of an App.
func described(pod *corev1.Pod) map[string]string {
	at := pod.Annotations
	return map[string]string{
		"__meta_kubernetes_namespace": pod.Namespace, "__meta_kubernetes_pod_name": pod.Name,
		"__meta_kubernetes_pod_annotation_prometheus_io_scrape": at["prometheus.io/scrape"],
		"__meta_kubernetes_pod_annotation_prometheus_io_path":   at["prometheus.io/path"],
		"__meta_kubernetes_pod_label_pipeops_io_app":            pod.Labels["pipeops.io/app"],
	}
}
