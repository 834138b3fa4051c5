package rollout

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// TestOutcome_PerRun has a run that another one replaced.
func TestOutcome_PerRun(t *testing.T) {
	first := backend.Record{Command: "put-job", App: &backend.AppMark{Generation: 1}}
	for phase, want := range map[runnerapi.Phase]runnerapi.OperationState{
		runnerapi.PhaseHealthy:     runnerapi.OperationSucceeded,
		runnerapi.PhaseFailed:      runnerapi.OperationFailed,
		runnerapi.PhaseProgressing: runnerapi.OperationSuperseded,
	} {
		a := &v1alpha1.App{Spec: runnerapi.AppSpec{Type: runnerapi.TypeJob}}
		a.Generation, a.Status.ObservedGeneration, a.Status.Phase = 1, 1, phase
		Settle(a, &a.Status, false)
		a.Generation, a.Status.ObservedGeneration, a.Status.Phase = 2, 2, runnerapi.PhaseHealthy
		Settle(a, &a.Status, false)
		assert.Equal(t, want, outcomeOf(a, first).State, phase)
	}
}
