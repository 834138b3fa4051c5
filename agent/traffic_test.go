package agent_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
)

// TestTraffic: visitors come through the gateway and the tunnel, to an App whose pods accept no
// connections. A Runner sees what they requested, and their addresses only once the cluster's owner
// allows it. The next process of the agent reports what this one has counted.
func TestTraffic(t *testing.T) {
	p := planetest.Start(t, withGateway(t))
	policy, dir, given := filepath.Join(t.TempDir(), "policy.yaml"), t.TempDir(), token(t, p)
	require.NoError(t, os.WriteFile(policy, []byte("{}"), 0o600))
	withPolicy := func(c *config.Config) { c.PolicyFile = policy }
	first := run(t, p, dir, given, routesOn, withPolicy)
	id := p.AwaitOnline(t, time.Time{})
	const host = "seen.example.org"
	publicApp(t, "seen", host)
	awaitRoutes(t, p, host)
	_, err := p.Gateway.Grant(t.Context(), host, name)
	require.NoError(t, err)
	visitor := publicClient(t, p)
	awaitAnswer(t, visitor, host, http.StatusServiceUnavailable)

	runner, key := holding(t, issueRunner(t, p, "ops"), id), runnerapi.Key{Namespace: "production", Name: "seen"}
	requests := func(since time.Duration) (of runnerapi.HostTraffic) {
		got, err := runner.Routes().Traffic(t.Context(), key, runnerapi.TrafficOptions{Since: since})
		if err == nil && len(got.Hosts) == 1 {
			of = got.Hosts[0]
			assert.Empty(t, got.Incomplete)
		}
		return of
	}
	await.Until(t, "the request is counted", func() bool { return requests(time.Hour).Failed["not-ready"] > 0 })
	got := requests(time.Hour)
	assert.Equal(t, host, got.Host)
	assert.Equal(t, runnerapi.RouteTunnel, got.Mode)
	assert.True(t, got.Counted)
	assert.Equal(t, got.Requests, got.Errors)
	_, err = runner.Routes().Traffic(t.Context(), runnerapi.Key{Namespace: "production", Name: "none"}, runnerapi.TrafficOptions{})
	require.ErrorContains(t, err, "none")

	read := func() (lines []runnerapi.LogLine, err error) {
		err = runner.Routes().AccessLog(t.Context(), key, runnerapi.LogOptions{Tail: -1}, func(l runnerapi.LogLine) error {
			lines = append(lines, l)
			return nil
		})
		return lines, err
	}
	_, err = read()
	require.ErrorContains(t, err, "get-app-access-log")
	require.NoError(t, os.WriteFile(policy, []byte(`rules: [{name: all, commands: ["*", get-app-access-log]}]`), 0o600))
	await.Until(t, "requests are logged", func() bool {
		awaitAnswer(t, visitor, host, http.StatusServiceUnavailable)
		lines, err := read()
		if err != nil || len(lines) == 0 {
			return false
		}
		assert.Equal(t, "127.0.0.1", lines[0].Request.Address)
		assert.NotEmpty(t, lines[0].Request.RequestID)
		assert.NotEmpty(t, lines[0].Pod)
		return true
	})

	before := requests(24 * time.Hour).Requests
	first.stop()
	run(t, p, dir, given, routesOn, withPolicy)
	await.Until(t, "the next process reports it", func() bool { return requests(24*time.Hour).Requests >= before })
}
