package app

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestCounts_BoundsFailingNames expects the same names at each scrape.
func TestCounts_BoundsFailingNames(t *testing.T) {
	app := func(namespace, name string, s v1alpha1.Status) v1alpha1.App {
		return v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Status: s}
	}
	apps := []v1alpha1.App{
		app("shop", "web", v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseFailed, Diagnosis: &runnerapi.Diagnosis{Cause: "ImageNotFound"}}}),
		app("shop", "db", v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseHealthy}}),
		app("bank", "api", v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseDegraded}}),
		app("bank", "job", v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseProgressing, Diagnosis: &runnerapi.Diagnosis{Cause: "Crash"}}}),
	}
	assert.Equal(t, []Failing{
		{runnerapi.Key{Namespace: "bank", Name: "api"}, runnerapi.PhaseDegraded, ""},
		{runnerapi.Key{Namespace: "shop", Name: "web"}, runnerapi.PhaseFailed, "ImageNotFound"},
	}, failing(apps))
	for i := range 300 {
		apps = append(apps, app("many", fmt.Sprint(i), v1alpha1.Status{AppStatus: runnerapi.AppStatus{Phase: runnerapi.PhaseFailed}}))
	}
	assert.Len(t, failing(apps), MaxFailing)
}
