package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// count is how many calls of a verb reached the backend.
func count(b *runnertest.FakeBackend, verb string) int {
	n := 0
	for _, c := range b.Calls() {
		if c.Verb == verb {
			n++
		}
	}
	return n
}

// A cached App may only seem settled: another replica may have changed it.
func TestWait_ReadsLive(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	r := newRaw(t, agent)
	for path, body := range map[string]string{"apps/web": `{"image":"shop/web:1"}`, "jobs/migrate": `{"image":"shop/web:1"}`} {
		path = "/v1/namespaces/production/" + path
		resp, answer := r.do("PUT", path, body)
		require.Less(t, resp.StatusCode, 300, "%s", answer)
		for query, live := range map[string]int{"": 0, "?wait=0s": 0, "?wait=1s": 1} {
			before := count(agent.Backend, "GetLive")
			resp, answer := r.do("GET", path+query, "")
			require.Equal(t, 200, resp.StatusCode, "%s", answer)
			assert.Equal(t, before+live, count(agent.Backend, "GetLive"), path+query)
		}
	}
}

func TestIdempotencyKey_RunsOnce(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	r := newRaw(t, agent)
	for i, tc := range []struct{ verb, method, path, body, other string }{
		{"Apps.Deploy", "PUT", appPath, `{"image":"shop/web:1"}`, `{"image":"shop/web:2"}`},
		{"Apps.Scale", "POST", appPath + "/scale", `{"replicas":2}`, `{"replicas":3}`},
		{"Apps.Deploy", "PUT", appPath, `{"image":"shop/web:3"}`, `{"image":"shop/web:4"}`},
		{"Apps.Rollback", "POST", appPath + "/rollback", `{}`, `{"revision":1}`},
		{"Secrets.Set", "PUT", "/v1/namespaces/production/secrets/s", `{"data":{"a":"1"}}`, `{"data":{"a":"2"}}`},
		{"Secrets.Delete", "DELETE", "/v1/namespaces/production/secrets/s", "", ""},
		{"Apps.Pause", "POST", appPath + "/pause", "", ""},
		{"Apps.Delete", "DELETE", appPath, "", ""},
	} {
		key := []string{"Idempotency-Key", fmt.Sprintf("key-%d", i)}
		before := count(agent.Backend, tc.verb)
		first, body := r.do(tc.method, tc.path, tc.body, key...)
		require.Less(t, first.StatusCode, 300, "%s: %s", tc.verb, body)
		id := first.Header.Get("Operation-Id")
		require.NotEmpty(t, id, tc.verb)
		assert.Equal(t, "/v1/operations/"+id, first.Header.Get("Location"))
		live := count(agent.Backend, "GetLive")
		again, repeated := r.do(tc.method, tc.path, tc.body, key...)
		if strings.HasPrefix(tc.verb, "Apps.") && tc.method != "DELETE" {
			assert.Equal(t, live+1, count(agent.Backend, "GetLive"), "%s: another replica may have carried it out", tc.verb)
		}
		assert.Equal(t, first.StatusCode, again.StatusCode, "%s: %s", tc.verb, repeated)
		assert.Equal(t, string(body), string(repeated), tc.verb)
		assert.Equal(t, id, again.Header.Get("Operation-Id"))
		assert.Equal(t, before+1, count(agent.Backend, tc.verb), tc.verb)
		if tc.other == "" {
			continue
		}
		for path, body := range map[string]string{tc.path: tc.other, tc.path + "?dryRun=false": tc.body} {
			refused, answer := r.do(tc.method, path, body, key...)
			assert.Equal(t, http.StatusConflict, refused.StatusCode, "%s: %s", tc.verb, path)
			var e runnerapi.Error
			require.NoError(t, json.Unmarshal(answer, &e))
			assert.Equal(t, runnerapi.CodeIdempotencyKeyReused, e.Code)
			assert.Empty(t, refused.Header.Get("Operation-Id"))
			assert.Equal(t, before+1, count(agent.Backend, tc.verb))
		}
	}
}

// The backend tells commands apart by this name.
func TestCommand_HasUniqueName(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	r := newRaw(t, agent)
	names := map[string]bool{}
	for _, body := range []string{`{"image":"a"}`, `{"image":"b"}`} {
		resp, text := r.do("PUT", appPath, body)
		require.Less(t, resp.StatusCode, 300, string(text))
	}
	resp, text := r.do("PUT", appPath, `{"image":"c"}`, "Idempotency-Key", "mine")
	require.Less(t, resp.StatusCode, 300, string(text))
	for _, c := range agent.Backend.Calls() {
		if c.Verb == "Apps.Deploy" {
			name := c.Command
			assert.NotEmpty(t, name)
			assert.False(t, names[name], name)
			names[name] = true
		}
	}
	assert.Len(t, names, 3)
}

func TestIdempotencyKey_FreeAfterRefusal(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for _, tc := range []struct {
		path, body string
		status     int
	}{
		{appPath, `{"image":""}`, 422},
		{appPath + "?dryRun=true", `{"image":"a"}`, 200},
		{appPath + "?dryRun=perhaps", `{"image":"a"}`, 422},
		{"/v1/namespaces/elsewhere/apps/web", `{"image":"a"}`, 403},
		{appPath, `{"image":"b"}`, 202},
		{appPath, `{"image":"c"}`, 409},
	} {
		resp, body := r.do("PUT", tc.path, tc.body, "Idempotency-Key", "mine")
		assert.Equal(t, tc.status, resp.StatusCode, "%s %s: %s", tc.path, tc.body, body)
	}
}

func TestOperation_States(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c := agent.Client()
	app, err := c.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "slow"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	op, err := c.Operations().Get(t.Context(), app.Operation)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.OperationPending, op.State)
	assert.Equal(t, "put-app", op.Command)
	assert.Equal(t, runnertest.RunnerName, op.Runner)
	agent.Backend.Finish(web)
	op, err = c.Operations().Get(t.Context(), app.Operation)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.OperationSucceeded, op.State)

	missing, err := c.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "missing"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = c.Apps().Wait(t.Context(), web, missing.Generation)
	require.NoError(t, err)
	op, err = c.Operations().Get(t.Context(), missing.Operation)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.OperationFailed, op.State)
	assert.Equal(t, runnerapi.CauseImageNotFound, op.Diagnosis.Cause)
	op, err = c.Operations().Get(t.Context(), app.Operation)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.OperationSuperseded, op.State)
	_, err = c.Operations().Get(t.Context(), "nosuch")
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, err))
}

// The first request got no response; the second reports the release as uninstalled.
func TestHelmRelease_RepeatedDelete(t *testing.T) {
	backend := runnertest.NewBackend()
	agent := runnertest.Start(t, backend)
	c, key := agent.Client(), runnerapi.Key{Namespace: "production", Name: "guide"}
	_, err := c.Releases().Deploy(t.Context(), key, runnerapi.ReleaseSpec{Chart: runnerapi.ChartSource{Archive: []byte("chart")}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	var held atomic.Bool
	backend.Intercept = func(_ context.Context, call runnertest.Call) error {
		if call.Verb != "Releases.Delete" || held.Swap(true) {
			return nil
		}
		_, err := agent.Client().Releases().Delete(t.Context(), key, runnerapi.WriteOptions{IdempotencyKey: "that-replica"})
		assert.NoError(t, err)
		return errors.New("the answer is lost")
	}
	release, err := c.Releases().Delete(t.Context(), key, runnerapi.WriteOptions{IdempotencyKey: "held"})
	require.NoError(t, err, "the client has sent it again")
	assert.True(t, held.Load())
	assert.Equal(t, runnerapi.Release{Namespace: "production", Name: "guide", Status: runnerapi.ReleaseUninstalled}, release)
}

// A delete is held on its way to the cluster, sent again and answered. An object that was made
// under the name since then stays.
func TestIdempotencyKey_HeldDelete(t *testing.T) {
	const path = "/v1/namespaces/production/configmaps/c"
	for name, lost := range map[string]bool{"the retry deletes": false, "the retry finds nothing left": true} {
		t.Run(name, func(t *testing.T) {
			backend := runnertest.NewBackend()
			arrived, goOn := make(chan struct{}), make(chan struct{})
			var held atomic.Bool
			backend.Intercept = func(_ context.Context, call runnertest.Call) error {
				if call.Verb == "ConfigMaps.Delete" && call.IdempotencyKey == "held" && !held.Swap(true) {
					close(arrived)
					<-goOn
				}
				return nil
			}
			r := newRaw(t, runnertest.Start(t, backend))
			ask := func(want int, method, key string) {
				body := ""
				if method == http.MethodPut {
					body = `{"data":{"a":"1"}}`
				}
				got, answer := r.do(method, path, body, "Idempotency-Key", key)
				assert.Equal(t, want, got.StatusCode, "%s %s: %s", method, key, answer)
			}
			ask(http.StatusOK, http.MethodPut, "first")
			var going sync.WaitGroup
			going.Go(func() { ask(http.StatusNoContent, http.MethodDelete, "held") })
			await.Closed(t, arrived, "the deletion that is held")
			if lost { // a replica deleted it, and could not note that any more
				ask(http.StatusNoContent, http.MethodDelete, "that-replica")
				ask(http.StatusNoContent, http.MethodDelete, "held")
				ask(http.StatusNotFound, http.MethodDelete, "another")
			} else {
				ask(http.StatusNoContent, http.MethodDelete, "held")
			}
			ask(http.StatusOK, http.MethodPut, "newer")
			close(goOn)
			going.Wait()
			ask(http.StatusNoContent, http.MethodDelete, "held")
			got, _ := r.do(http.MethodGet, path, "")
			assert.Equal(t, http.StatusOK, got.StatusCode)
		})
	}
}
