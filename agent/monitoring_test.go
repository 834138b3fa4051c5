package agent_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// component is a Service as the charts make it, but for its selector: a fake on this machine is
// behind it.
const component = `
---
apiVersion: v1
kind: Service
metadata: {namespace: monitoring, name: %[1]s, labels: {app.kubernetes.io/name: %[1]s}}
spec: {ports: [{name: %[2]s, port: 80, targetPort: %[4]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: monitoring, name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
endpoints: [{addresses: [%[3]s]}]
ports: [{name: %[2]s, port: %[4]s}]
`

// monitor gives the cluster what answers the examples of metrics over time.
func (s *shop) monitor(t *testing.T) {
	t.Helper()
	f := monitoringtest.StartAt(t, s.env.Cluster.HostIP())
	f.Answer(monitoringtest.QueryRange, func(q url.Values) any {
		labels := map[string]string{"namespace": "production"}
		if strings.Contains(q.Get("query"), "by (namespace, pod)") {
			labels["pod"] = "web-7d4b9c6f5-x2x4q"
		}
		return monitoringtest.Matrix(monitoringtest.Series(q, "0.25", labels))
	})
	f.Answer(monitoringtest.Alerts, func(url.Values) any {
		return monitoringtest.Firing(map[string]string{"alertname": "Watchdog"}, map[string]string{"alertname": "AppFailed", "namespace": "production"})
	})
	f.Answer(monitoringtest.LokiRange, func(q url.Values) any {
		labels := map[string]string{"namespace": "production", "app": "web", "container": "web", "pod": "web-gone"}
		return monitoringtest.Streams(monitoringtest.Log(q, labels, []monitoringtest.Line{{At: time.Now().Add(-time.Hour), Text: "GET /healthz of a pod that is gone"}}))
	})
	f.Answer(monitoringtest.Allocation, func(q url.Values) any {
		if strings.Contains(q.Get("aggregate"), "label:") {
			return monitoringtest.Allocations("production/web")
		}
		return monitoringtest.Allocations("production")
	})
	at, err := url.Parse(f.URL)
	require.NoError(t, err)
	manifests := "apiVersion: v1\nkind: Namespace\nmetadata: {name: monitoring}\n"
	for name, port := range map[string]string{"prometheus": "http", "loki": "http-metrics", "opencost": "http"} {
		manifests += fmt.Sprintf(component, name, port, at.Hostname(), at.Port())
	}
	s.env.Apply(t, manifests)
}

// readMonitoring runs the command line's examples of what the components know.
func (s *shop) readMonitoring(t *testing.T) {
	lines, err := harness.Monitored()
	require.NoError(t, err)
	s.run(t, "pipeops-runner deploy shop web --image "+harness.ExampleImage)
	for _, line := range lines {
		t.Log(line + "\n" + s.run(t, line))
	}
	assert.Contains(t, s.run(t, "pipeops-runner logs shop web --since 24h"), "of a pod that is gone")
	s.run(t, "pipeops-runner delete shop web")
}
