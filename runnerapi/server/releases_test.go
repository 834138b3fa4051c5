package server_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/decode"
)

const guidePath = "/v1/namespaces/production/releases/guide"

func TestHelmRelease_WaitsOnRequest(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	body := `{"chart":{"repository":"https://charts.example.com","name":"web"}}`
	resp, answer := r.do("PUT", guidePath, body, "Content-Type", "application/json")
	require.Equal(t, 202, resp.StatusCode, string(answer))
	var release runnerapi.Release
	require.NoError(t, json.Unmarshal(answer, &release))
	assert.True(t, release.Busy())
	_, outcome := r.do("GET", resp.Header.Get("Location"), "")
	assert.Contains(t, string(outcome), `"state":"succeeded"`)
	resp, answer = r.do("PUT", guidePath+"?wait=10s", body, "Content-Type", "application/json")
	require.Equal(t, 200, resp.StatusCode, string(answer))
	assert.Contains(t, string(answer), `"status":"deployed"`)
	resp, answer = r.do("PUT", guidePath+"?wait=10s", `{"chart":{"archive":"eA=="},"timeout":"1s"}`, "Content-Type", "application/json")
	require.Equal(t, 200, resp.StatusCode, string(answer))
	assert.Contains(t, string(answer), "did not become ready", "a failed revision is an outcome")
	_, outcome = r.do("GET", resp.Header.Get("Location"), "")
	assert.Contains(t, string(outcome), `"state":"failed"`)
	resp, answer = r.do("DELETE", guidePath+"?wait=10s", "", "Content-Type", "application/json")
	require.Equal(t, 200, resp.StatusCode, string(answer))
	assert.Contains(t, string(answer), `"status":"uninstalled"`)
}

func TestHelmRelease_RefusesInvalidSpec(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	r := newRaw(t, agent)
	for body, field := range map[string]string{
		`{}`:           "required property chart",
		`{"chart":{}}`: `"field":"chart"`,
		`{"chart":{"repository":"https://x","oci":"oci://y"}}`:                 "chart",
		`{"chart":{"repository":"https://x"}}`:                                 "chart.name",
		`{"chart":{"oci":"https://x","version":"1"}}`:                          "chart.oci",
		`{"chart":{"oci":"oci://x/y"}}`:                                        "chart.version",
		`{"chart":{"oci":"oci://x/y","version":"1","name":"z"}}`:               "chart.name",
		`{"chart":{"archive":"eA==","version":"1"}}`:                           "chart.archive",
		`{"chart":{"archive":"eA=="},"timeout":"2h"}`:                          "timeout",
		`{"chart":{"archive":"eA=="},"timeout":"soon"}`:                        "timeout",
		`{"chart":{"archive":"` + strings.Repeat("eHh4", (2<<20)/3+10) + `"}}`: "chart.archive",
	} {
		resp, answer := r.do("PUT", guidePath, body, "Content-Type", "application/json")
		assert.Equal(t, 422, resp.StatusCode, "%.80s: %s", body, answer)
		assert.Contains(t, string(answer), field, "%.80s", body)
	}
	resp, _ := r.do("PUT", guidePath, `{"chart":{"archive":"`+strings.Repeat("e", runnerapi.MaxReleaseBody)+`"}}`, "Content-Type", "application/json")
	assert.Equal(t, 413, resp.StatusCode)
	assert.Empty(t, agent.Backend.Calls(), "nothing of it came further")
}

func FuzzReleaseSpec(f *testing.F) {
	f.Add([]byte(`{"chart":{"repository":"https://charts.example.com","name":"web","version":"^1"},"values":{"a":[1,{"b":null}]},"timeout":"1m"}`))
	f.Add([]byte(`{"chart":{"archive":"eA=="},"values":{}}`))
	f.Add([]byte(`{"chart":{"oci":"oci://x/y","version":"1"},"adopt":true}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var spec runnerapi.ReleaseSpec
		if decode.Decode(body, &spec) != nil || len(spec.Validate()) > 0 {
			return
		}
		// What is taken means the same when it is sent again, and has a limit.
		d := spec.TimeLimit()
		require.True(t, d > 0 && d <= runnerapi.MaxReleaseTimeout, d)
		text, err := json.Marshal(spec)
		require.NoError(t, err)
		var again runnerapi.ReleaseSpec
		require.NoError(t, decode.Decode(text, &again), text)
		twice, _ := json.Marshal(again)
		require.True(t, bytes.Equal(text, twice), "%s\n%s", text, twice)
	})
}
