package app

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

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
