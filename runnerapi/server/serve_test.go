package server_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/memnet"
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
	await.Until(t, "both calls are in progress", func() bool { return waiting() == 2 })
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

// inMemory runs a test with the bytes of HTTP/1.1, each time on a separate connection.
func inMemory(t *testing.T, test func(t *testing.T, send func(request string) (*http.Response, string, time.Duration))) {
	t.Helper()
	identity := verified(t, http.MethodGet, "/").TLS
	synctest.Test(t, func(t *testing.T) {
		b := runnertest.NewBackend()
		handler := server.New(runnertest.AllowAll{}, server.Config{Apps: b.Apps(), Secrets: b.Secrets(), TrustDomain: runnertest.TrustDomain, Log: zerolog.Nop()})
		ctx, stop := context.WithCancel(t.Context())
		listener, done := memnet.New(), make(chan error, 1)
		go func() {
			done <- transport.Serve(ctx, listener, transport.ServeConfig{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				r.TLS = identity
				handler.ServeHTTP(w, r)
			})})
		}()
		test(t, func(request string) (*http.Response, string, time.Duration) {
			ours, err := listener.Dial(t.Context(), "", "")
			require.NoError(t, err)
			begun := time.Now()
			go func() { _, _ = io.WriteString(ours, request) }() // the server need not read all
			resp, err := http.ReadResponse(bufio.NewReader(ours), nil)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, ours.Close())
			return resp, string(body), time.Since(begun)
		})
		stop()
		require.NoError(t, <-done)
	})
}

func request(method, path string, header ...string) string {
	return fmt.Sprintf("%s %s HTTP/1.1\r\nHost: agent\r\nContent-Type: application/json\r\n%s\r\n\r\n", method, path, strings.Join(header, "\r\n"))
}

func TestRequest_BodyTimesOut(t *testing.T) {
	inMemory(t, func(t *testing.T, send func(string) (*http.Response, string, time.Duration)) {
		for _, begun := range []string{
			request("PUT", appPath, "Content-Length: 20") + `{"image"`,
			request("PUT", appPath, "Content-Length: 20"),
			request("PUT", appPath, "Transfer-Encoding: chunked") + "8\r\n" + `{"image"`,
		} {
			resp, body, took := send(begun)
			assert.Equal(t, http.StatusRequestTimeout, resp.StatusCode, body)
			assert.Contains(t, body, `"code":"request_timeout"`)
			assert.Equal(t, 30*time.Second, took)
		}
	})
}

func TestRequest_RefusedBeforeBody(t *testing.T) {
	inMemory(t, func(t *testing.T, send func(string) (*http.Response, string, time.Duration)) {
		for what, c := range map[string]struct {
			request string
			status  int
		}{
			"length over the limit": {request("PUT", appPath, "Content-Length: 1048577"), 413},
			"over the limit":        {request("POST", appPath+"/scale", "Transfer-Encoding: chunked") + "10001\r\n" + strings.Repeat(" ", 65537), 413},
			"no chunk":              {request("PUT", appPath, "Transfer-Encoding: chunked") + "zz\r\n", 400},
			"chunk without end":     {request("PUT", appPath, "Transfer-Encoding: chunked") + "1\r\n{}\r\n", 400},
			"body where none is":    {request("DELETE", appPath, "Content-Length: 20"), 400},
			"wrong type":            {"PUT " + appPath + " HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n", 415},
			"bad query":             {request("PUT", appPath+"?dryRun=", "Content-Length: 20"), 422},
			"no such path":          {request("PUT", "/v1/nothing", "Content-Length: 20"), 404},
			"no such method":        {request("PATCH", appPath, "Content-Length: 20"), 405},
		} {
			resp, body, took := send(c.request)
			assert.Equal(t, c.status, resp.StatusCode, "%s: %s", what, body)
			assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"), what)
			assert.Less(t, took, time.Second, what) // net/http lingers for half of one
		}
	})
}

func TestRequest_KeepsConnection(t *testing.T) {
	inMemory(t, func(t *testing.T, send func(string) (*http.Response, string, time.Duration)) {
		resp, body, _ := send(request("PUT", appPath+"?wait=2m", "Content-Length: 16") + `{"image":"slow"}`)
		assert.Equal(t, http.StatusAccepted, resp.StatusCode, body)
		assert.False(t, resp.Close, "the deadline of the body is not that of the wait")
	})
}
