package app

import (
	"fmt"
	"testing"
	"time"

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

// TestWatch_FlappingIsOneEvent expects further events only for what a reader acts upon.
func TestWatch_FlappingIsOneEvent(t *testing.T) {
	e := &Engine{now: time.Now}
	a := &v1alpha1.App{}
	a.Name = "web"
	var last runnerapi.AppEvent
	var types []runnerapi.AppEventType
	see := func(change func(*runnerapi.AppStatus)) {
		change(&a.Status.AppStatus)
		next := e.appEvent(a, last)
		if next.ID != last.ID {
			types = append(types, next.Type)
		}
		last = next
	}
	crash := func(object string, restarts int32) *runnerapi.Diagnosis {
		return &runnerapi.Diagnosis{
			Cause: runnerapi.CauseCrashLoop, Object: object, Fix: "read its logs", ExitCode: new(restarts % 2),
			Message:   fmt.Sprintf("the process keeps ending; %d restarts in %d minutes", restarts, restarts),
			LastLines: []string{fmt.Sprintf("12:%02d no database", restarts)},
		}
	}
	see(func(s *runnerapi.AppStatus) {
		s.Phase, s.ReadyReplicas, s.DesiredReplicas = runnerapi.PhaseHealthy, 1, 1
	})
	for n := range int32(20) {
		see(func(s *runnerapi.AppStatus) {
			s.Phase, s.ReadyReplicas, s.Restarts = runnerapi.PhaseDegraded, n%2, n
			s.Diagnosis = crash("pod/web-1", n)
		})
	}
	assert.Equal(t, []runnerapi.AppEventType{runnerapi.EventPhase, runnerapi.EventPhase}, types, "twenty restarts are one state")

	types = nil
	see(func(s *runnerapi.AppStatus) { s.Diagnosis = crash("pod/web-2", 20) })
	see(func(s *runnerapi.AppStatus) { s.DesiredReplicas = 2 })
	see(func(s *runnerapi.AppStatus) { s.Phase, s.Diagnosis = runnerapi.PhaseProgressing, nil })
	see(func(s *runnerapi.AppStatus) { s.ReadyReplicas = 2 })
	see(func(s *runnerapi.AppStatus) { s.WaitingFor = "its pods to stay ready" })
	see(func(s *runnerapi.AppStatus) { s.Restarts++ })
	assert.Equal(t, []runnerapi.AppEventType{
		runnerapi.EventDiagnosis, runnerapi.EventProgress, runnerapi.EventPhase, runnerapi.EventProgress, runnerapi.EventProgress,
	}, types)
}
