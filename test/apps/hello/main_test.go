package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
)

func TestHello_Answers(t *testing.T) {
	t.Setenv("POD_NAME", "hello-0")
	t.Setenv("GREETING", "good morning")
	t.Setenv("PASSWORD", "secret")
	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/":                  {http.StatusOK, "hello from hello-0: good morning\n"},
		"/healthz":           {http.StatusOK, "ok\n"},
		"/readyz":            {http.StatusOK, "ok\n"},
		"/env?name=PASSWORD": {http.StatusNotFound, "404 page not found\n"},
	} {
		recorder := httptest.NewRecorder()
		logged(handler(false)).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, want.status, recorder.Code, path)
		require.Equal(t, want.body, recorder.Body.String(), path)
	}
}

func TestHello_NeverReady(t *testing.T) {
	recorder := httptest.NewRecorder()
	handler(true).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusServiceUnavailable, recorder.Code)
}

func TestHello_Crashes(t *testing.T) {
	require.Equal(t, 3, run(t.Context(), options{addr: "127.0.0.1:0", crashAfter: time.Millisecond, exitCode: 3}))
}

func TestHello_Terminates(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, 0, run(ctx, options{addr: "127.0.0.1:0"}))
}

func TestHello_Get(t *testing.T) {
	server := httptest.NewServer(handler(true))
	defer server.Close()
	require.Equal(t, 0, run(t.Context(), options{get: server.URL + "/healthz"}))
	require.Equal(t, 1, run(t.Context(), options{get: server.URL + "/readyz"}))
	require.Equal(t, 1, run(t.Context(), options{get: "http://127.0.0.1:1/"}))
}

func TestHello_Chores(t *testing.T) {
	for _, c := range []struct {
		args  []string
		code  int
		known bool
	}{
		{nil, 0, false},
		{[]string{"sweep"}, 0, false},
		{[]string{"test"}, 0, true},
		{[]string{"migrate"}, 0, true},
		{[]string{"migrate", "--to", "42"}, 0, true},
		{[]string{"migrate", "--to", "43"}, 1, true},
	} {
		code, known := chore(c.args)
		require.Equal(t, c.code, code, c.args)
		require.Equal(t, c.known, known, c.args)
	}
}

// wire is an end of a connection.
type wire struct {
	io.Reader
	io.Writer
}

func TestHello_MovesBytes(t *testing.T) {
	const size = 100_001
	want, err := io.ReadAll(payload.Bytes(size))
	require.NoError(t, err)
	var down, up bytes.Buffer
	require.NoError(t, moveBytes(wire{bytes.NewBufferString("down 100001\n"), &down}))
	require.Equal(t, want, down.Bytes())

	require.NoError(t, moveBytes(wire{io.MultiReader(bytes.NewBufferString("up 100001\n"), bytes.NewReader(want)), &up}))
	sum := sha256.Sum256(want)
	require.Equal(t, hex.EncodeToString(sum[:]), up.String())

	require.Error(t, moveBytes(wire{bytes.NewBufferString("up 5\nabc"), io.Discard}), "the end came early")
	require.Error(t, moveBytes(wire{bytes.NewBufferString("sideways 5\n"), io.Discard}))
}
