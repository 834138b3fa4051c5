package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestDrainNode_ReportsSteps(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	r := newRaw(t, agent)
	path := "/v1/nodes/" + runnertest.NodeName + "/drain"
	resp, answer := r.do("POST", path, "{}", "Content-Type", "application/json")
	require.Equal(t, 202, resp.StatusCode, string(answer))
	var first runnerapi.Drain
	require.NoError(t, json.Unmarshal(answer, &first))
	require.Len(t, first.Remaining, 1)
	assert.Contains(t, first.Remaining[0].Message, "disruption budget web")
	var seen []runnerapi.Drain
	drain, err := agent.Client().Nodes().Drain(t.Context(), runnertest.NodeName, runnerapi.DrainOptions{}, runnerapi.WriteOptions{},
		func(d runnerapi.Drain) { seen = append(seen, d) })
	require.NoError(t, err)
	assert.True(t, drain.Done)
	assert.Equal(t, []string{"production/web-1"}, drain.Evicted)
	assert.Equal(t, drain, seen[len(seen)-1])
}

// Each step has its own key, the same the second time.
func TestDrainNode_IdempotencyKey(t *testing.T) {
	b := runnertest.NewBackend()
	agent := runnertest.Start(t, b)
	var keys []string
	b.Intercept = func(_ context.Context, c runnertest.Call) error {
		keys = append(keys, c.IdempotencyKey)
		return nil
	}
	for range 2 {
		drain, err := agent.Client().Nodes().Drain(t.Context(), runnertest.NodeName, runnerapi.DrainOptions{}, runnerapi.WriteOptions{IdempotencyKey: "k"}, func(runnerapi.Drain) {})
		require.NoError(t, err)
		assert.True(t, drain.Done)
	}
	for _, key := range keys {
		assert.Equal(t, "k-1", key)
	}
	assert.NotEmpty(t, keys)
}

func TestDrainNode_ReportsEvicted(t *testing.T) {
	b := runnertest.NewBackend()
	b.DrainFails = problem.Errorf(problem.Unavailable, "", "the API server is gone")
	r := newRaw(t, runnertest.Start(t, b))
	resp, answer := r.do("POST", "/v1/nodes/"+runnertest.NodeName+"/drain", "{}", "Content-Type", "application/json")
	assert.Equal(t, 503, resp.StatusCode)
	assert.Contains(t, string(answer), "the API server is gone; these pods had been evicted before: production/web-1")
}

func TestDrainNode_WaitRetries(t *testing.T) {
	t.Parallel()
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	resp, answer := r.do("POST", "/v1/nodes/"+runnertest.NodeName+"/drain?wait=10s", "{}", "Content-Type", "application/json")
	assert.Equal(t, 200, resp.StatusCode, string(answer))
	assert.Contains(t, string(answer), `"done":true`)
}

func TestNodes_RefuseInvalidFields(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for _, c := range []struct{ method, path, body, field string }{
		{"GET", "/v1/nodes/UPPER", "", `"path.name"`},
		{"POST", "/v1/nodes/node-1/drain", `{"gracePeriodSeconds":-1}`, "gracePeriodSeconds"},
		{"POST", "/v1/nodes/node-1/drain", `{"forse":true}`, "forse"},
		{"POST", "/v1/nodes/node-1/drain?wait=1h", `{}`, "query.wait"},
		{"GET", "/v1/namespaces/production/events?since=yesterday", "", "query.since"},
		{"GET", "/v1/namespaces/production/events?limit=100000", "", "limit"},
		{"GET", "/v1/namespaces/production/events?type=Odd", "", "type"},
	} {
		resp, answer := r.do(c.method, c.path, c.body, "Content-Type", "application/json")
		assert.Equal(t, 422, resp.StatusCode, c.path)
		assert.Contains(t, string(answer), c.field, c.path)
	}
	for path, want := range map[string]int{"/v1/nodes/none": 404, "/v1/namespaces/elsewhere/events": 403} {
		resp, _ := r.do("GET", path, "")
		assert.Equal(t, want, resp.StatusCode, path)
	}
}

// A Runner that may only read does not get the token. No log has it.
func TestJoinToken_NeedsNamedRule(t *testing.T) {
	p := newAsked(func(i runnerapi.Intent) error {
		if i.Access == runnerapi.Reads {
			return nil
		}
		return refuseAll(i)
	})
	said, log := &bytes.Buffer{}, &auditor{}
	agent := runnertest.New(t, runnertest.NewBackend())
	agent.Policy, agent.Audit, agent.Log = p, log, zerolog.New(zerolog.SyncWriter(said))
	agent.Start()
	c := agent.Client()
	command, err := c.Nodes().JoinCommand(ctxFor(t))
	require.NoError(t, err)
	assert.Equal(t, `bash join-worker.sh https://192.0.2.10:6443 - <<<"$K3S_TOKEN"`, command.Command)
	_, err = c.Nodes().JoinToken(ctxFor(t))
	assert.Equal(t, runnerapi.CodePolicyDenied, problemOf(t, err).Code)

	p.become(func(runnerapi.Intent) error { return nil })
	token, err := c.Nodes().JoinToken(ctxFor(t))
	require.NoError(t, err)
	assert.Equal(t, runnertest.JoinToken, token.Token)
	assert.NotContains(t, token.String(), token.Token)
	await.Until(t, "the refusal is recorded, and that the token was given", func() bool { return len(log.all()) == 2 })
	assert.Equal(t, "get-join-token", log.all()[1].Command)
	assert.Empty(t, log.all()[1].Arguments)
	resp, _ := newRaw(t, agent).do(http.MethodGet, "/v1/cluster/join/token", "")
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	agent.Stop()
	assert.Contains(t, said.String(), "/v1/cluster/join/token")
	assert.NotContains(t, said.String(), runnertest.JoinToken)
}
