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
