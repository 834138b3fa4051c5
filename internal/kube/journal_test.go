package kube_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func claimOf(key, body string) backend.Claim {
	return backend.Claim{
		Caller: byTest.Caller, Key: key, Command: "put-secret", Target: runnerapi.Key{Namespace: production, Name: "db"},
		Method: "PUT", Path: "/v1/namespaces/production/secrets/db", Body: []byte(body),
	}
}

func TestJournal_SharedByReplicas(t *testing.T) {
	env := kubetest.ControlPlane(t)
	first, second := asAgent(t, env).Journal(), asAgent(t, env).Journal()
	r, known, err := first.Claim(t.Context(), claimOf("known", `{"data":{"a":"hunter2"}}`))
	require.NoError(t, err)
	assert.False(t, known)
	assert.Regexp(t, "^[a-z0-9]{26}$", r.ID)
	r.Done, r.Status, r.Answer = true, 200, []byte(`{"name":"db"}`)
	require.NoError(t, first.Finish(t.Context(), r))

	again, known, err := second.Claim(t.Context(), claimOf("known", `{"data":{"a":"hunter2"}}`))
	require.NoError(t, err)
	assert.True(t, known)
	assert.Equal(t, r, again)
	_, _, err = second.Claim(t.Context(), claimOf("known", `{"data":{"a":"hunter3"}}`))
	p := problemOf(t, err)
	assert.Equal(t, runnerapi.CodeIdempotencyKeyReused, p.Code)
	assert.Equal(t, 409, p.Status)
	other := claimOf("known", `{"data":{"a":"hunter2"}}`)
	other.Caller.Runner = "another"
	_, known, err = second.Claim(t.Context(), other)
	require.NoError(t, err)
	assert.False(t, known, "a key is the Runner's own")

	found, err := second.Find(t.Context(), r.ID)
	require.NoError(t, err)
	assert.Equal(t, r, found)
	_, err = second.Find(t.Context(), "nowhere")
	assert.Equal(t, runnerapi.CodeNotFound, problemOf(t, err).Code)

	var all appsv1.ControllerRevisionList
	require.NoError(t, env.Client.List(t.Context(), &all, client.InNamespace(kubetest.AgentNamespace)))
	require.NotEmpty(t, all.Items)
	for _, o := range all.Items {
		assert.NotContains(t, fmt.Sprintf("%+v %s", o, o.Data.Raw), "hunter", "what was sent is not kept")
	}
}

func TestJournal_ReleasedKeyIsFree(t *testing.T) {
	env := kubetest.ControlPlane(t)
	j := asAgent(t, env).Journal()
	r, _, err := j.Claim(t.Context(), claimOf("released", "a"))
	require.NoError(t, err)
	require.NoError(t, j.Release(t.Context(), r.ID))
	require.NoError(t, j.Release(t.Context(), r.ID))
	_, known, err := j.Claim(t.Context(), claimOf("released", "b"))
	require.NoError(t, err)
	assert.False(t, known)
}

// TestJournal_KeepsOthersResults has a replica that was held until the command expired, and refuses
// it.
func TestJournal_KeepsOthersResults(t *testing.T) {
	env := kubetest.ControlPlane(t)
	held, other := asAgent(t, env).Journal(), asAgent(t, env).Journal()
	r, _, err := held.Claim(t.Context(), claimOf("carried-out", "a"))
	require.NoError(t, err)
	r.Done, r.Status = true, 204
	require.NoError(t, other.Finish(t.Context(), r))
	require.NoError(t, held.Release(t.Context(), r.ID))
	later := r
	later.App = &backend.AppMark{UID: "u", Generation: 7}
	require.NoError(t, held.Finish(t.Context(), later))
	again, known, err := other.Claim(t.Context(), claimOf("carried-out", "a"))
	require.NoError(t, err)
	assert.True(t, known)
	assert.Equal(t, r, again)
}

func TestJournal_OneClaimWins(t *testing.T) {
	env := kubetest.ControlPlane(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for range 8 {
		j := asAgent(t, env).Journal()
		wg.Go(func() {
			_, known, err := j.Claim(t.Context(), claimOf("raced", "a"))
			mu.Lock()
			defer mu.Unlock()
			assert.NoError(t, err)
			if !known {
				fresh++
			}
		})
	}
	wg.Wait()
	assert.Equal(t, 1, fresh)
}
