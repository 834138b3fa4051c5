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
)

var web = runnerapi.Key{Namespace: "production", Name: "web"}

func ctxFor(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func codeOf(t *testing.T, err error) runnerapi.Code {
	t.Helper()
	e := &runnerapi.Error{}
	require.ErrorAs(t, err, &e)
	assert.NotEmpty(t, e.Fix, "every error says what to do")
	return e.Code
}

func TestApp_Lifecycle(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c, ctx := agent.Client(), ctxFor(t)

	app, err := c.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: "shop/web:1", Ports: []runnerapi.Port{{Port: 8080}}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, app.Generation)
	assert.Nil(t, app.Spec.Replicas, "which is one, but may be another for a deploy that keeps the scale")
	assert.Equal(t, runnerapi.TypeDeployment, app.Spec.Type, "defaults are filled in")
	assert.False(t, app.Settled())

	app, err = c.Apps().Wait(ctx, web, app.Generation)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.PhaseHealthy, app.Status.Phase)

	app, err = c.Apps().Scale(ctx, web, runnerapi.Scale{Replicas: new(int32(3))}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	var seen []client.Progress
	app, err = c.Apps().Watch(ctx, web, app.Generation, func(p client.Progress) { seen = append(seen, p) })
	require.NoError(t, err)
	assert.EqualValues(t, 3, app.Status.ReadyReplicas)
	assert.NotEmpty(t, seen)

	apps, err := c.Apps().List(ctx, "")
	require.NoError(t, err)
	assert.Len(t, apps, 1)
	apps, err = c.Apps().List(ctx, "elsewhere")
	require.NoError(t, err)
	assert.Empty(t, apps)

	require.NoError(t, c.Apps().Delete(ctx, web, runnerapi.WriteOptions{}))
	_, err = c.Apps().Get(ctx, web)
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, err))
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, c.Apps().Delete(ctx, web, runnerapi.WriteOptions{})))
}

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

func TestSecret_Lifecycle(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c, ctx := agent.Client(), ctxFor(t)
	key := runnerapi.Key{Namespace: "staging", Name: "web-env"}
	spec := runnerapi.SecretSpec{Data: map[string]string{"PASSWORD": "hunter2"}, BinaryData: map[string][]byte{"blob": {0xff, 0}}}

	_, err := c.Secrets().Set(ctx, key, spec, runnerapi.WriteOptions{})
	assert.Equal(t, runnerapi.CodeNamespaceNotManaged, codeOf(t, err))
	_, err = c.Namespaces().Set(ctx, "staging", runnerapi.NamespaceSpec{Labels: map[string]string{"team": "a"}}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	secret, err := c.Secrets().Set(ctx, key, spec, runnerapi.WriteOptions{})
	require.NoError(t, err)
	assert.Equal(t, []runnerapi.SecretKey{{Key: "PASSWORD", Size: 7}, {Key: "blob", Size: 2}}, secret.Keys)
	assert.Equal(t, spec.BinaryData, agent.Backend.SecretSpec(key).BinaryData)

	secrets, err := c.Secrets().List(ctx, "staging")
	require.NoError(t, err)
	assert.Len(t, secrets, 1)
	_, err = c.Secrets().Get(ctx, key)
	require.NoError(t, err)
	require.NoError(t, c.Secrets().Delete(ctx, key, runnerapi.WriteOptions{}))

	list, err := c.Namespaces().List(ctx)
	require.NoError(t, err)
	assert.Len(t, list, 2)
	ns, err := c.Namespaces().Get(ctx, "staging")
	require.NoError(t, err)
	assert.Equal(t, "a", ns.Labels["team"])
	require.NoError(t, c.Namespaces().Delete(ctx, "staging", runnerapi.WriteOptions{}))
	cluster, err := c.Cluster().Get(ctx)
	require.NoError(t, err)
	assert.Equal(t, runnertest.AgentID, cluster.AgentID)
	assert.Nil(t, cluster.Memory.Used, "unknown is not zero")
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
			config := runnertest.Start(t, backend).ClientConfig()
			config.Around = nil // the document has no conflict of a read
			c, err := client.New(config)
			require.NoError(t, err)
			t.Cleanup(c.Close)
			_, err = c.Cluster().Get(ctxFor(t))
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
