package app

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestARunHasItsOwnOutcome though another one took its place.
func TestARunHasItsOwnOutcome(t *testing.T) {
	first := runnerapi.Record{Command: "put-job", App: &runnerapi.AppMark{Generation: 1}}
	for phase, want := range map[runnerapi.Phase]runnerapi.OperationState{
		runnerapi.PhaseHealthy:     runnerapi.OperationSucceeded,
		runnerapi.PhaseFailed:      runnerapi.OperationFailed,
		runnerapi.PhaseProgressing: runnerapi.OperationSuperseded,
	} {
		a := &App{Spec: runnerapi.AppSpec{Type: runnerapi.TypeJob}}
		a.Generation, a.Status.ObservedGeneration, a.Status.Phase = 1, 1, phase
		settle(a, &a.Status, false)
		a.Generation, a.Status.ObservedGeneration, a.Status.Phase = 2, 2, runnerapi.PhaseHealthy
		settle(a, &a.Status, false)
		assert.Equal(t, want, outcomeOf(a, first).State, phase)
	}
}
