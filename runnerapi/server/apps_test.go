package server_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

var web = runnerapi.Key{Namespace: "production", Name: "web"}

func ctxFor(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

var codeOf = problemtest.CodeOf

func TestDeploy_PassesCaller(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c, ctx := agent.Client(), ctxFor(t)
	_, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{
		DryRun: true, IdempotencyKey: "k1", Caller: runnerapi.Caller{Runner: "somebody else"},
	})
	require.NoError(t, err)
	call := agent.Backend.Calls()[0]
	assert.Equal(t, runnertest.RunnerName, call.Caller.Runner)
	assert.NotEmpty(t, call.Caller.RequestID)
	assert.True(t, call.DryRun)
	assert.Equal(t, "k1", call.IdempotencyKey)
	_, err = c.Apps().Get(ctx, web)
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, err), "a dry run changes nothing")
}

// Two changes made from the same generation: the second is refused, and neither is lost.
func TestDeploy_IfMatch(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c, ctx := agent.Client(), ctxFor(t)
	seen, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	first, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "b"}, runnerapi.WriteOptions{Generation: seen.Generation})
	require.NoError(t, err)
	_, err = c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "c"}, runnerapi.WriteOptions{Generation: seen.Generation})
	require.Equal(t, runnerapi.CodeChanged, codeOf(t, err))
	assert.Equal(t, http.StatusPreconditionFailed, problemtest.Of(t, err).Status)
	found, err := c.Apps().Get(ctx, web)
	require.NoError(t, err)
	assert.Equal(t, "b", found.Spec.Image)
	assert.Equal(t, first.Generation, found.Generation)
}

// The first response is lost after the command ran.
func TestClient_RetryRunsOnce(t *testing.T) {
	fake := runnertest.NewBackend()
	agent := runnertest.Start(t, fake)
	c, ctx := agent.Client(), ctxFor(t)
	_, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)

	lost := &losing{Apps: fake.Apps()}
	srv := serveTLS(t, agent, lost)
	c2 := srv.Client()
	lost.answers.Store(1)
	app, err := c2.Apps().Restart(ctx, web, runnerapi.WriteOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 2, app.Generation, "one restart")
	lost.answers.Store(1)
	require.NoError(t, c2.Apps().Delete(ctx, web, runnerapi.WriteOptions{}), "a repeated delete that finds nothing")
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, c2.Apps().Delete(ctx, web, runnerapi.WriteOptions{})), "one that was not repeated")
}

// losing carries out commands and fails then, as a connection that breaks does.
type losing struct {
	backend.Apps
	answers atomic.Int32
}

func (l *losing) lose(err error) error {
	if err == nil && l.answers.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
	return err
}

func (l *losing) Restart(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	app, err := l.Apps.Restart(ctx, key, opts)
	return app, l.lose(err)
}

func (l *losing) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return l.lose(l.Apps.Delete(ctx, key, opts))
}

func TestClient_RetriesTransientErrors(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err   error
		calls int
		code  runnerapi.Code
	}{
		"unavailable passes": {unavailable(), 3, ""},
		"conflict is final":  {&runnerapi.Error{Status: 409, Code: runnerapi.CodeConflict, Detail: "taken", Fix: "choose another"}, 1, runnerapi.CodeConflict},
		"a bug is a bug":     {errors.New("secret detail"), 3, runnerapi.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			backend := runnertest.NewBackend()
			var calls atomic.Int32
			backend.Intercept = func(context.Context, runnertest.Call) error {
				if n := calls.Add(1); tc.code == "" && n == 3 {
					return nil
				}
				return tc.err
			}
			c := runnertest.Start(t, backend).ClientWith(func(c *client.Config) { c.Around = nil }) // the document has no conflict of a read
			_, err := c.Cluster().Get(ctxFor(t))
			if tc.code == "" {
				require.NoError(t, err)
			} else {
				assert.Equal(t, tc.code, codeOf(t, err))
				assert.NotContains(t, err.Error(), "secret detail")
			}
			assert.EqualValues(t, tc.calls, calls.Load())
		})
	}
}

func unavailable() error {
	return &runnerapi.Error{Status: 503, Code: runnerapi.CodeUnavailable, Detail: "busy", Fix: "wait"}
}

func TestWait_SurvivesRestart(t *testing.T) {
	t.Parallel()
	agent := runnertest.Start(t, runnertest.NewBackend())
	c, ctx := agent.Client(), ctxFor(t)
	app, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "slow"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	reported := make(chan client.Progress, 64)
	type result struct {
		app runnerapi.App
		err error
	}
	done := make(chan result, 1)
	go func() {
		app, err := c.Apps().Watch(ctx, web, app.Generation, func(p client.Progress) { reported <- p })
		done <- result{app, err}
	}()
	await.Receive(t, reported, "progress")
	agent.Stop()
	agent.Backend.Finish(web)
	agent.Start()
	r := await.Receive(t, done, "the end of the wait")
	require.NoError(t, r.err)
	assert.Equal(t, runnerapi.PhaseHealthy, r.app.Status.Phase)
}

func TestWait_ReturnsNewestState(t *testing.T) {
	t.Parallel()
	agent := runnertest.Start(t, runnertest.NewBackend())
	c := agent.Client()
	app, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "slow"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(ctxFor(t))
	defer cancel()
	app, err = c.Apps().Watch(ctx, web, app.Generation, func(client.Progress) { cancel() })
	require.NoError(t, err)
	assert.Equal(t, runnerapi.PhaseProgressing, app.Status.Phase)
	_, err = c.Apps().Wait(ctxFor(t), runnerapi.Key{Namespace: "production", Name: "none"}, 1)
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, err))
}

// Replicas and autoscaling count as one field.
func TestDeploy_KeepsUnnamedFields(t *testing.T) {
	t.Parallel()
	bounds := &runnerapi.Autoscaling{Min: 2, Max: 5}
	for name, c := range map[string]struct{ named, has, want runnerapi.AppSpec }{
		"nothing is named": {
			runnerapi.AppSpec{Image: "b"},
			runnerapi.AppSpec{Image: "a", Replicas: new(int32(5)), Autoscaling: bounds, Paused: new(true), Command: []string{"x"}},
			runnerapi.AppSpec{Image: "b", Replicas: new(int32(5)), Autoscaling: bounds, Paused: new(true)},
		},
		"a number of pods": {
			runnerapi.AppSpec{Replicas: new(int32(0))}, runnerapi.AppSpec{Replicas: new(int32(2)), Autoscaling: bounds, Paused: new(true)},
			runnerapi.AppSpec{Replicas: new(int32(0)), Paused: new(true)},
		},
		"autoscaling": {
			runnerapi.AppSpec{Autoscaling: bounds}, runnerapi.AppSpec{Replicas: new(int32(9))}, runnerapi.AppSpec{Autoscaling: bounds},
		},
		"no pause": {
			runnerapi.AppSpec{Paused: new(false)}, runnerapi.AppSpec{Replicas: new(int32(3)), Paused: new(true)},
			runnerapi.AppSpec{Replicas: new(int32(3))},
		},
		"a new App": {runnerapi.AppSpec{Image: "a", Paused: new(false)}, runnerapi.AppSpec{}, runnerapi.AppSpec{Image: "a"}},
	} {
		assert.Equal(t, c.want, c.named.KeepUnnamed(c.has), name)
	}
}

func TestMetricsHistory_LimitsRange(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	client, r := agent.Client(), newRaw(t, agent)
	_, err := client.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "web"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	for query, field := range map[string]string{
		"":                         "",
		"?since=24h":               "",
		"?since=720h&step=45m":     "",
		"?since=720h&step=2592s":   "query.step", // 1001 values
		"?since=720h1s":            "query.since",
		"?since=2020-01-01":        "query.since",
		"?since=2020-01-01T00:00Z": "query.since",
		"?since=-1h":               "query.since",
		"?step=14s":                "query.step",
		"?step=15500ms":            "query.step",
		"?step=x":                  "query.step",
		"?by=container":            "query.by",
		"?query=up":                "query.query", // queries are the agent's
	} {
		resp, answer := r.do(http.MethodGet, appPath+"/metrics/history"+query, "")
		if field == "" {
			assert.Equal(t, http.StatusOK, resp.StatusCode, "%s: %s", query, answer)
			continue
		}
		assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, query)
		assert.Contains(t, string(answer), `"`+field+`"`, query)
	}
	history, err := client.Monitoring().MetricsHistory(t.Context(), web, runnerapi.HistoryOptions{Since: 24 * time.Hour})
	require.NoError(t, err)
	assert.Equal(t, "6m0s", history.Step)
	assert.Len(t, history.Series[0].Values, 241)
}
