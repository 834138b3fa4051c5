package monitoring_test

import (
	"context"
	"maps"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

// metered has right-sizing's recommendation for each App.
type metered struct{}

func (metered) Metrics(_ context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error) {
	return runnerapi.AppMetrics{Namespace: key.Namespace, Name: key.Name, Sizing: runnerapi.SizingMetrics{Mode: runnerapi.SizingApply}}, nil
}

func sizedBy(metric, namespace, app string, value string, more map[string]string) monitoringtest.Object {
	labels := map[string]string{"__name__": metric, "namespace": namespace, "target_name": app, "verticalpodautoscaler": "web-vpa"}
	maps.Copy(labels, more)
	return monitoringtest.Object{"metric": labels, "value": []any{1.5, value}}
}

func TestVPA_BesideSizing(t *testing.T) {
	const target, mode = "kube_verticalpodautoscaler_recommendation_target", "kube_verticalpodautoscaler_update_mode"
	f := monitoringtest.Start(t)
	f.Answer(monitoringtest.Query, func(url.Values) any {
		return monitoringtest.Vector(
			sizedBy(target, "production", "web", "0.025", map[string]string{"container": "web", "resource": "cpu"}),
			sizedBy(target, "production", "web", "262144000", map[string]string{"container": "web", "resource": "memory"}),
			sizedBy(target, "production", "web", "NaN", map[string]string{"container": "proxy", "resource": "cpu"}),
			sizedBy(mode, "production", "web", "1", map[string]string{"update_mode": "Off"}),
			sizedBy(target, "payroll", "web", "9", map[string]string{"container": "web", "resource": "cpu"}),
		)
	})
	m, err := reading("prometheus", f).Beside(metered{}).Metrics(t.Context(), web)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.SizingApply, m.Sizing.Mode)
	cpu, memory := int64(25), int64(262144000)
	assert.Equal(t, &runnerapi.VPAMetrics{Name: "web-vpa", Mode: "Off", Containers: []runnerapi.VPARecommendation{
		{Name: "proxy"}, {Name: "web", CPU: &cpu, Memory: &memory},
	}}, m.VPA)
	assert.Equal(t, target+`{namespace="production",target_name="web"} or `+mode+`{namespace="production",target_name="web"}`, f.Asked()[0].Get("query"))
}

// TestVPA_Absent has no Prometheus, one that fails, and one that knows no VPA.
func TestVPA_Absent(t *testing.T) {
	failing, empty := monitoringtest.Start(t), monitoringtest.Start(t)
	empty.Answer(monitoringtest.Query, func(url.Values) any { return monitoringtest.Vector() })
	for _, f := range []*monitoringtest.Fake{nil, failing, empty} {
		m, err := reading("prometheus", f).Beside(metered{}).Metrics(t.Context(), web)
		require.NoError(t, err)
		assert.Nil(t, m.VPA)
		assert.Equal(t, "web", m.Name)
	}
}
