package server_test

import (
	"context"
	"net"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// A drain lets calls finish, ends waits with what is known, and makes followers of logs come
// again.
func TestServe_Drains(t *testing.T) {
	t.Parallel()
	agent, c := withApp(t)
	agent.Stop()
	agent.Drain = time.Minute
	agent.Start()
	_, err := c.Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "slow"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	r := newRaw(t, agent)
	type answer struct {
		status int
		body   string
	}
	ask := func(path string) chan answer {
		ch := make(chan answer, 1)
		go func() {
			resp, body := r.do(http.MethodGet, path, "")
			ch <- answer{resp.StatusCode, string(body)}
		}()
		return ch
	}
	wait := ask(appPath + "?wait=5m&generation=2")
	follow := ask(appPath + "/logs?follow=true")
	waiting := func() (n int) {
		for _, call := range agent.Backend.Calls() {
			if call.Verb == "Apps.Wait" || call.Verb == "Apps.Logs" {
				n++
			}
		}
		return n
	}
	await.Until(t, "both calls are under way", func() bool { return waiting() == 2 })
	agent.Stop()
	got := await.Receive(t, wait, "the answer of the wait")
	assert.Equal(t, 200, got.status)
	assert.Contains(t, got.body, `"phase":"Progressing"`)
	got = await.Receive(t, follow, "the end of the log")
	assert.Contains(t, got.body, "the agent is shutting down")
	assert.Contains(t, got.body, `"code":"unavailable"`)
}

func TestServe_ReturnsListenerError(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	err = transport.Serve(context.Background(), ln, transport.ServeConfig{Handler: http.NotFoundHandler(), Log: zerolog.Nop()})
	require.ErrorIs(t, err, net.ErrClosed)
}

// An idle server has one goroutine, which accepts and is the caller's.
func TestServe_OneGoroutine(t *testing.T) {
	const servers = 8
	before := runtime.NumGoroutine()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, servers)
	for range servers {
		ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go func() {
			served <- transport.Serve(ctx, ln, transport.ServeConfig{Handler: http.NotFoundHandler(), Log: zerolog.Nop()})
		}()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String(), nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	http.DefaultClient.CloseIdleConnections()
	await.Until(t, "each server has one goroutine", func() bool { return runtime.NumGoroutine() <= before+servers })
	stop()
	for range servers {
		require.NoError(t, await.Receive(t, served, "the end of a server"))
	}
}
