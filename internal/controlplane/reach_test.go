package controlplane

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

// A host is tried again until its App has answered, and again when another agent has it.
func TestReach_UntilAnswered(t *testing.T) {
	s := storetest.Open(t, &databases, postgres.Chosen(t))
	var answers atomic.Bool
	r := newReach(s, func(string) bool { return true }, func(context.Context, string, string) error {
		if answers.Load() {
			return nil
		}
		return errors.New("no pod listens")
	})
	await.Background(t, "the checks", r.Run)
	is := func(agentID, want, reason string) {
		t.Helper()
		await.Until(t, want, func() bool {
			state, why := r.of(agentID, "www.example.org")
			return state == want && (reason == "" || why == reason)
		})
	}
	state, _ := r.of("a1", "www.example.org")
	assert.Equal(t, controlapi.ReachPending, state)
	is("a1", controlapi.ReachFailed, "no pod listens")
	answers.Store(true)
	is("a1", controlapi.ReachReady, "")
	answers.Store(false)
	is("a1", controlapi.ReachReady, "")
	is("a2", controlapi.ReachFailed, "no pod listens")
}
