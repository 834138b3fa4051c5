package app_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// TestEvents_AfterLongAbsence has the control plane be away while an App
// changes again and again and others come and go, with the agent restarted in between.
// What is kept is bounded: the last changes of each App in their order, the ends of those
// that are gone, and for a name that was used again its end before its beginning.
func TestEvents_AfterLongAbsence(t *testing.T) {
	suite.Release(t, "what is announced after a long absence of the control plane")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	r := &receiver{}
	r.set(errors.New("the control plane is away"))
	busy, again := key(ns, "busy"), key(ns, "again")
	e, stop := start(t, env, ns, r.take)
	deploy(t, e, busy, web())
	const rounds = 6
	for n := range rounds {
		_, err := e.Scale(t.Context(), busy, runnerapi.Scale{Replicas: new(int32(n + 2))}, byTest)
		require.NoError(t, err)
		eventually(t, "the deployment follows", func() bool {
			d := &appsv1.Deployment{}
			return exists(t, env, busy, d) && *d.Spec.Replicas == int32(n+2)
		})
		rollOut(t, env, busy)
		eventually(t, "it is healthy, and that was tried", func() bool {
			tries := r.refused(busy.Name)
			return len(tries) > 0 && tries[len(tries)-1].Type == events.Healthy && tries[len(tries)-1].Ready == int32(n+2)
		})
		deploy(t, e, again, web())
		require.NoError(t, e.Delete(t.Context(), again, byTest))
		eventually(t, "the namesake is gone", func() bool { return !exists(t, env, again, &v1alpha1.App{}) })
		if n == rounds/2 {
			stop()
			e, stop = start(t, env, ns, r.take)
		}
	}
	deploy(t, e, again, web())
	require.Empty(t, r.of(busy.Name))

	r.set(nil)
	eventually(t, "the last words arrive", func() bool {
		of := r.of(again.Name)
		return len(r.of(busy.Name)) > 0 && len(of) > 0 && of[len(of)-1].Type == events.Progressing
	})
	eventually(t, "the busy one's arrive", func() bool {
		got := r.of(busy.Name)
		return got[len(got)-1].Ready == rounds+1
	})
	got := r.of(busy.Name)
	require.Len(t, got, 10, "however often it changed")
	assert.Equal(t, events.Healthy, got[9].Type)
	for i, ev := range got[1:] {
		assert.GreaterOrEqual(t, ev.Generation, got[i].Generation)
		assert.False(t, ev.Time.Before(got[i].Time), "in order")
	}
	namesakes := r.of(again.Name)
	require.Len(t, namesakes, rounds+1)
	for i, ev := range namesakes[:rounds] {
		assert.Equal(t, events.Removed, ev.Type)
		assert.True(t, i == 0 || !ev.Time.Before(namesakes[i-1].Time), "the ends come in order")
	}
	assert.Equal(t, events.Progressing, namesakes[rounds].Type)
}
