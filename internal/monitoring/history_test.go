package monitoring_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/monitoring"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/monitoringtest"
)

var hour = runnerapi.HistoryOptions{Since: time.Hour, Step: 10 * time.Minute}

func TestHistory_QueriesOnlyApp(t *testing.T) {
	f := answering(t, monitoringtest.QueryRange, func(q url.Values) any {
		return monitoringtest.Matrix(monitoringtest.Series(q, "0.25", map[string]string{"namespace": "production"}))
	})
	history, err := reading("prometheus", f).MetricsHistory(t.Context(), web, hour)
	require.NoError(t, err)
	require.Len(t, history.Series, 6)
	assert.Equal(t, runnerapi.MetricCPU, history.Series[0].Metric)
	require.Len(t, history.Series[0].Values, 7)
	assert.InDelta(t, 0.25, *history.Series[0].Values[6], 0)
	assert.Equal(t, time.Hour, history.End.Sub(history.Start))

	asked := f.Asked()
	require.Len(t, asked, 6)
	assert.Equal(t, `sum by (namespace) (rate(container_cpu_usage_seconds_total{namespace="production",pod=~"web-.*",container="web"}[600s]))`,
		asked[0].Get("query"))
	for _, q := range asked {
		assert.Equal(t, "600", q.Get("step"))
		for selected := range strings.SplitSeq(q.Get("query"), "{") {
			if conditions, _, ok := strings.Cut(selected, "}"); ok {
				assert.Contains(t, conditions, `namespace="production",pod=~"web-.*"`, q.Get("query"))
			}
		}
	}
}

// TestHistory_HidesForeign is of a Prometheus that answers what it was not asked for.
func TestHistory_HidesForeign(t *testing.T) {
	f := answering(t, monitoringtest.QueryRange, func(q url.Values) any {
		return monitoringtest.Matrix(
			monitoringtest.Series(q, "1", map[string]string{"namespace": "payroll", "pod": "web-1"}),
			monitoringtest.Series(q, "2", map[string]string{"namespace": "production", "pod": "other-1"}),
			monitoringtest.Series(q, "3", map[string]string{"pod": "web-1"}),
			monitoringtest.Series(q, "4", map[string]string{"namespace": "production"}),
			monitoringtest.Series(q, "5", map[string]string{"namespace": "production", "pod": "web-1"}),
		)
	})
	history, err := reading("prometheus", f).MetricsHistory(t.Context(), web, runnerapi.HistoryOptions{Since: time.Hour, Step: time.Hour, ByPod: true})
	require.NoError(t, err)
	for _, s := range history.Series {
		assert.InDelta(t, 5, *s.Values[0], 0)
	}
	assert.Len(t, history.Series, 6)
}

func TestHistory_Bounded(t *testing.T) {
	f := answering(t, monitoringtest.QueryRange, func(q url.Values) any {
		var all []monitoringtest.Object
		for i := range 50 {
			all = append(all, monitoringtest.Series(q, "1", map[string]string{"namespace": "production", "pod": fmt.Sprintf("web-%d", i)}))
		}
		return monitoringtest.Matrix(all...)
	})
	history, err := reading("prometheus", f).MetricsHistory(t.Context(), web, runnerapi.HistoryOptions{Since: time.Hour, Step: time.Hour, ByPod: true})
	require.NoError(t, err)
	assert.Len(t, history.Series, runnerapi.MaxHistorySeries)
	assert.Equal(t, 6*50-runnerapi.MaxHistorySeries, history.Omitted)
}

// JSON has no NaN and no infinity.
func TestHistory_SkipsNonNumbers(t *testing.T) {
	f := answering(t, monitoringtest.QueryRange, func(q url.Values) any {
		return monitoringtest.Matrix(monitoringtest.Object{
			"metric": map[string]string{"namespace": "production"},
			"values": [][]any{{q.Get("start"), "NaN"}},
		})
	})
	_, err := reading("prometheus", f).MetricsHistory(t.Context(), web, hour)
	assert.Equal(t, problem.Unavailable, problemOf(t, err).Code, "a time is a number")

	f.Answer(monitoringtest.QueryRange, func(q url.Values) any {
		s := monitoringtest.Series(q, "1", map[string]string{"namespace": "production"})
		s["values"] = append([][]any{{-5e300, "1"}, {5e300, "1"}}, s["values"].([][]any)[1:]...)
		s["values"].([][]any)[2][1] = "NaN"
		s["values"].([][]any)[3][1] = "+Inf"
		return monitoringtest.Matrix(s)
	})
	history, err := reading("prometheus", f).MetricsHistory(t.Context(), web, hour)
	require.NoError(t, err)
	values := history.Series[0].Values
	assert.Nil(t, values[0])
	assert.Nil(t, values[1])
	assert.Nil(t, values[2])
	assert.NotNil(t, values[3])
}

func TestHistory_UnknownApp(t *testing.T) {
	_, err := reading("prometheus", monitoringtest.Start(t)).MetricsHistory(t.Context(), runnerapi.Key{Namespace: "payroll", Name: "web"}, hour)
	assert.Equal(t, problem.NotFound, problemOf(t, err).Code)
}

func TestComponent_Missing(t *testing.T) {
	_, err := reading("prometheus", nil).MetricsHistory(t.Context(), web, hour)
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeNotSupported, p.Code)
	assert.Equal(t, http.StatusNotImplemented, p.Status)
	assert.Contains(t, p.Fix, "pipeops-agent component install prometheus")
}

// TestComponent_Fails has a cause and a fix for each way to fail.
func TestComponent_Fails(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		code   problem.Code
		detail string
	}{
		"refuses":   {monitoringtest.Failure{Status: 422, Body: `{"status":"error","errorType":"execution","error":"too many samples"}`}, problem.Unavailable, "too many samples"},
		"overload":  {monitoringtest.Failure{Status: 503, Body: "busy\x1b[31m"}, problem.Unavailable, "busy"},
		"moved":     {monitoringtest.Failure{Status: 302}, problem.Unavailable, "Found"},
		"nonsense":  {"hello", problem.Unavailable, "not understood"},
		"huge":      {strings.Repeat("x", 9<<20), problem.Invalid, "more than 8 MiB"},
		"countless": {make([]int, 2<<20), problem.Invalid, "more than 8 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			f := answering(t, monitoringtest.QueryRange, func(url.Values) any { return c.answer })
			_, err := reading("prometheus", f).MetricsHistory(t.Context(), web, hour)
			p := problemOf(t, err)
			assert.Equal(t, c.code, p.Code)
			assert.Contains(t, p.Detail, c.detail)
			assert.NotContains(t, p.Detail, "\x1b")
		})
	}
}

func TestComponent_Down(t *testing.T) {
	reader := monitoring.New(apps{}, func(context.Context, string) (*monitoring.Component, error) {
		return &monitoring.Component{URL: "http://127.0.0.1:1"}, nil // nothing may listen there
	})
	_, err := reader.MetricsHistory(t.Context(), web, hour)
	p := problemOf(t, err)
	assert.Equal(t, problem.Unavailable, p.Code)
	assert.Contains(t, p.Fix, "pipeops-agent component list")
}

func TestComponent_Slow(t *testing.T) {
	f := monitoringtest.Start(t)
	over := make(chan struct{})
	t.Cleanup(func() { close(over) })
	f.Answer(monitoringtest.QueryRange, func(url.Values) any { <-over; return nil })
	reader := reading("prometheus", f)
	reader.Patience(time.Millisecond)
	_, err := reader.MetricsHistory(t.Context(), web, hour)
	p := problemOf(t, err)
	assert.Equal(t, problem.Timeout, p.Code)
	assert.Contains(t, p.Detail, "prometheus did not answer in time")
}

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
	f := answering(t, monitoringtest.Query, func(url.Values) any {
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
