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
