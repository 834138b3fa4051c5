package command

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

func askAt(t *testing.T, handler http.Handler, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	var out, err bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(append([]string{"ready", "--url", server.URL}, args...))
	code = execute(t.Context(), root, &err)
	return code, out.String(), err.String()
}

func TestReady_NamesMissingChecks(t *testing.T) {
	code, _, stderr := askAt(t, server.NewHealth("v1", func(context.Context) error { return errors.New("tunnel: starting") }, nil))
	assert.Equal(t, exitError, code)
	assert.Contains(t, stderr, "not ready: tunnel: starting\n  fix:")

	code, _, stderr = askAt(t, http.NotFoundHandler())
	assert.Equal(t, exitError, code)
	assert.Contains(t, stderr, "is not an agent's health port")
}

func TestReady_Waits(t *testing.T) {
	var asked atomic.Int32
	health := server.NewHealth("v1", func(context.Context) error {
		if asked.Add(1) == 1 {
			return errors.New("tunnel: starting")
		}
		return nil
	}, func() string { return "tunnels: 1 of 2 up" })
	code, stdout, stderr := askAt(t, health, "--wait", "1m")
	assert.Equal(t, exitOK, code, stderr)
	assert.Equal(t, "ready, version v1\ndegraded: tunnels: 1 of 2 up\n", stdout)
}
