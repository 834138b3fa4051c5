package server_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

func TestTraffic(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	client, r := agent.Client(), newRaw(t, agent)
	_, err := client.Routes().Traffic(t.Context(), web, runnerapi.TrafficOptions{})
	require.Error(t, err, "there is no such App")
	_, err = client.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "web"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	for since, step := range map[time.Duration]string{0: "1m0s", time.Hour: "1m0s", 24 * time.Hour: "1h0m0s"} {
		got, err := client.Routes().Traffic(t.Context(), web, runnerapi.TrafficOptions{Since: since})
		require.NoError(t, err)
		assert.Equal(t, step, got.Step)
		assert.Len(t, got.Hosts, 2)
	}
	resp, answer := r.do(http.MethodGet, appPath+"/traffic?since=2h", "")
	assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode)
	assert.Contains(t, string(answer), `"query.since"`)
}

func TestAccessLog(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	client, r := agent.Client(), newRaw(t, agent)
	var lines []runnerapi.LogLine
	read := func(grep string) error {
		lines = nil
		return client.Routes().AccessLog(t.Context(), web, runnerapi.LogOptions{Tail: -1, Grep: grep}, func(l runnerapi.LogLine) error {
			lines = append(lines, l)
			return nil
		})
	}
	require.Error(t, read(""), "there is no such App")
	_, err := client.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "web"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	require.NoError(t, read("203.0.113.7"))
	require.Len(t, lines, 1)
	assert.Equal(t, "curl/8.5", lines[0].Request.UserAgent)
	require.NoError(t, read("198.51.100.1"))
	assert.Empty(t, lines)
	for _, query := range []string{"?previous=true", "?container=web"} { // of containers alone
		resp, _ := r.do(http.MethodGet, appPath+"/access-log"+query, "")
		assert.Equal(t, http.StatusUnprocessableEntity, resp.StatusCode, query)
	}
	_, text := r.do(http.MethodGet, appPath+"/access-log", "", "Accept", "text/plain")
	assert.Contains(t, string(text), `203.0.113.7 "GET web.example.com/" 200`)
}

// TestAccessLog_NeedsName: a rule for all commands does not allow it.
func TestAccessLog_NeedsName(t *testing.T) {
	assert.Equal(t, runnerapi.Named, runnerapi.CallOf(runnerapi.AccessLogCall).Access)
	assert.Equal(t, runnerapi.Reads, runnerapi.CallOf("get-app-traffic").Access)
}
