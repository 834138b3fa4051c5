package observe

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestOpenCost_PodLabels: a real Prometheus with our jobs keeps the namespace
// that OpenCost, here a fake, names, and not OpenCost's own. OpenCost finds Apps by these series.
func TestOpenCost_PodLabels(t *testing.T) {
	suite.Release(t, "scraping OpenCost by a real Prometheus")
	fake := metricsOf(t, func() string {
		return `kube_pod_labels{namespace="production",pod="web-1",label_pipeops_io_app="web"} 1` + "\n"
	})
	address := monitoringtest.StartPrometheus(t, freeport.Address(t), map[string]monitoringtest.Target{"monitoring": {Address: fake, Labels: map[string]string{
		"__meta_kubernetes_service_annotation_prometheus_io_scrape": "true", "__meta_kubernetes_namespace": "monitoring",
		"__meta_kubernetes_service_name": "opencost",
	}}})
	var labels map[string]string
	await.Until(t, "the series is there", func() bool {
		labels = seriesOf(t, address, "kube_pod_labels")
		return labels != nil
	})
	assert.Equal(t, []string{"production", "web-1", "web", "opencost"},
		[]string{labels["namespace"], labels["pod"], labels["label_pipeops_io_app"], labels["service"]})
}

// seriesOf returns the labels of the first series of a metric; nil for none.
func seriesOf(t *testing.T, prometheus, metric string) map[string]string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+prometheus+"/api/v1/query?query="+url.QueryEscape(metric), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	var answer struct {
		Data struct {
			Result []struct{ Metric map[string]string }
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	if len(answer.Data.Result) == 0 {
		return nil
	}
	return answer.Data.Result[0].Metric
}
