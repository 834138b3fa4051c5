package workload

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestMetrics_AnnotatedForPrometheus expects the annotations beside those of the spec.
func TestMetrics_AnnotatedForPrometheus(t *testing.T) {
	annotations := func(spec runnerapi.AppSpec) map[string]string {
		return podTemplate(&v1alpha1.App{Spec: spec}).Annotations
	}
	assert.Empty(t, annotations(runnerapi.AppSpec{Image: "a"}))
	assert.Equal(t, map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "9090", "prometheus.io/path": "/metrics"},
		annotations(runnerapi.AppSpec{Image: "a", Metrics: &runnerapi.MetricsPort{Port: 9090}}))
	assert.Equal(t, map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "80", "prometheus.io/path": "/m", "team": "shop"},
		annotations(runnerapi.AppSpec{
			Image: "a", Metrics: &runnerapi.MetricsPort{Port: 80, Path: "/m"},
			PodAnnotations: map[string]string{"team": "shop", "prometheus.io/port": "1"},
		}))
}

func TestSizing_AppliedInTemplate(t *testing.T) {
	a := &v1alpha1.App{Spec: runnerapi.AppSpec{Image: "a", RightSizing: &runnerapi.RightSizing{Mode: runnerapi.SizingApply}}}
	a.Name = "web"
	requests := func() v1alpha1.AppliedSizing { return RequestsOf(podTemplate(a).Spec.Containers[0].Resources) }
	own := requests()
	a.Status.Sizing = &v1alpha1.SizingStatus{Applied: &v1alpha1.AppliedSizing{By: v1alpha1.ByRollout, CPU: 20, Memory: 40 << 20}}
	assert.Equal(t, v1alpha1.AppliedSizing{CPU: 20, Memory: 40 << 20}, requests())
	a.Status.Sizing.Applied.By = v1alpha1.ByResize
	assert.Equal(t, own, requests(), "what was done in place is no reason for a rollout")
	a.Status.Sizing.Applied.By = v1alpha1.ByRollout
	a.Spec.RightSizing.Mode = runnerapi.SizingRecommend
	assert.Equal(t, own, requests(), "turned off, it is gone")
}
