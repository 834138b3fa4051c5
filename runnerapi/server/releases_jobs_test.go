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

var migrate = runnerapi.Key{Namespace: "production", Name: "migrate"}

func TestJob_Lifecycle(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c := agent.Client()
	retries := int32(1)
	spec := runnerapi.JobSpec{Image: "shop/web:1", Args: []string{"migrate"}, Retries: &retries, Run: "one"}
	job, err := c.Jobs().Run(t.Context(), migrate, spec, runnerapi.WriteOptions{})
	require.NoError(t, err)
	assert.NotEmpty(t, job.Operation)
	job, err = c.Jobs().Wait(t.Context(), migrate, job.Generation, func(runnerapi.Job, error) {})
	require.NoError(t, err)
	assert.Equal(t, runnerapi.JobSucceeded, job.Status.State)
	assert.Equal(t, spec, job.Spec)
	app, err := c.Apps().Get(t.Context(), migrate)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.TypeJob, app.Spec.Type)

	_, err = c.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "shop/web:1"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	items, err := c.Jobs().List(t.Context(), "production")
	require.NoError(t, err)
	require.Len(t, items, 1, "an App that serves is not a Job")
	for what, call := range map[string]func(runnerapi.Key) error{
		"get":    func(k runnerapi.Key) error { _, err := c.Jobs().Get(t.Context(), k); return err },
		"delete": func(k runnerapi.Key) error { return c.Jobs().Delete(t.Context(), k, runnerapi.WriteOptions{}) },
		"logs": func(k runnerapi.Key) error {
			return c.Jobs().Logs(t.Context(), k, runnerapi.LogOptions{Tail: -1}, func(runnerapi.LogLine) error { return nil })
		},
		"another kind": func(runnerapi.Key) error { _, err := c.Pipelines().Get(t.Context(), migrate); return err },
	} {
		assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, call(web)), what)
	}
	require.NoError(t, c.Jobs().Delete(t.Context(), migrate, runnerapi.WriteOptions{}))
	_, err = c.Jobs().Get(t.Context(), migrate)
	assert.Error(t, err)
}

func TestPipeline_ReportsFailedJob(t *testing.T) {
	c := runnertest.Start(t, runnertest.NewBackend()).Client()
	k := runnerapi.Key{Namespace: "production", Name: "release"}
	spec := runnerapi.PipelineSpec{Image: "shop/web:1", Jobs: []runnerapi.PipelineJob{{Name: "test"}, {Name: "build", Image: "missing"}, {Name: "deploy"}}}
	p, err := c.Pipelines().Run(t.Context(), k, spec, runnerapi.WriteOptions{})
	require.NoError(t, err)
	p, err = c.Pipelines().Wait(t.Context(), k, p.Generation, func(runnerapi.Pipeline, error) {})
	require.NoError(t, err)
	assert.Equal(t, runnerapi.JobFailed, p.Status.State)
	assert.Equal(t, "build", p.Status.FailedJob)
	assert.Equal(t, runnerapi.JobNotRun, p.Status.Jobs[2].State)
	assert.Equal(t, spec, p.Spec)
	list, err := c.Pipelines().List(t.Context(), "production")
	require.NoError(t, err)
	assert.Len(t, list, 1)
	require.NoError(t, c.Pipelines().Delete(t.Context(), k, runnerapi.WriteOptions{}))
}

func TestJob_RefusesInvalidSpec(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for body, field := range map[string]string{
		`jobs {"args":["x"]}`:                                                             `"detail":"expected required property image`,
		`jobs {"image":"a","retries":-1}`:                                                 `"field":"retries"`,
		`jobs {"image":"a","replicas":2}`:                                                 `"field":"replicas"`,
		`jobs {"image":"a","envFrom":[{}]}`:                                               `"field":"envFrom[0]`,
		`jobs {"image":"a","run":"a b"}`:                                                  `"field":"run"`,
		`pipelines {"jobs":[]}`:                                                           `"field":"jobs"`,
		`pipelines {"jobs":[{"name":"a"}]}`:                                               `"field":"image`,
		`pipelines {"image":"a","jobs":[{"name":"a"},{"name":"a"}]}`:                      `"field":"jobs[1].name`,
		`pipelines {"image":"a","jobs":[{"name":"` + strings.Repeat("a", 40) + `"}]}`:     `"field":"jobs[0].name`,
		`pipelines {"image":"a","jobs":[{"name":"a","env":[{"name":"X"},{"name":"X"}]}]}`: `"field":"jobs[0].env[1].name`,
	} {
		kind, body, _ := strings.Cut(body, " ")
		resp, answer := r.do("PUT", "/v1/namespaces/production/"+kind+"/a-name-of-twenty-three-letters", body, "Content-Type", "application/json")
		assert.Contains(t, []int{400, 422}, resp.StatusCode, "%s: %s", body, answer)
		assert.Contains(t, string(answer), field, body)
	}
}

// FuzzJob decodes what a Runner may send: nothing crashes, and what is taken comes
// back as it was sent.
func FuzzJob(f *testing.F) {
	f.Add([]byte(`{"image":"a","args":["x"],"retries":0,"run":"one","env":[{"name":"A","value":"b"}]}`))
	f.Add([]byte(`{"image":"a","completions":3,"resources":{"limits":{"cpu":"1"}},"podLabels":{"a":"b"}}`))
	f.Add([]byte(`{"image":"a","IMAGE":"b","image":"c"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var spec runnerapi.JobSpec
		if decode.Decode(raw, &spec) != nil {
			return
		}
		_ = spec.Validate()
		same(t, spec, runnerapi.JobOf(runnerapi.App{Spec: spec.AppSpec()}).Spec)
	})
}

// FuzzPipeline is FuzzJob of Pipelines, and of the Jobs that they become.
func FuzzPipeline(f *testing.F) {
	f.Add([]byte(`{"image":"a","jobs":[{"name":"x","args":["y"],"env":[{"name":"A"}]},{"name":"z","image":"b"}],"env":[{"name":"A"}]}`))
	f.Add([]byte(`{"jobs":[{"name":"x","image":"b","retries":0}],"run":"two","deadlineSeconds":5}`))
	f.Add([]byte(`{"jobs":null}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		var spec runnerapi.PipelineSpec
		if decode.Decode(raw, &spec) != nil {
			return
		}
		errs := spec.Validate()
		app := spec.AppSpec()
		for _, j := range app.Jobs {
			_ = app.JobSpec(j).Validate()
		}
		back := runnerapi.PipelineOf(runnerapi.App{Spec: app}).Spec
		if len(errs) == 0 {
			back.Image = spec.Image // one that no job needs is not kept
			same(t, spec, back)
		}
	})
}

func same(t *testing.T, want, have any) {
	t.Helper()
	w, err := json.Marshal(want)
	require.NoError(t, err)
	h, err := json.Marshal(have)
	require.NoError(t, err)
	assert.Equal(t, string(w), string(h))
}
