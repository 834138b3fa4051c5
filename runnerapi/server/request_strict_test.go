package server_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

const secretPath = "/v1/namespaces/production/secrets/s"

// refusalOf is the problem that was answered, with the status that was wanted.
func refusalOf(t *testing.T, status int, resp *http.Response, body []byte) runnerapi.Error {
	t.Helper()
	assert.Equal(t, status, resp.StatusCode, string(body))
	assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	var e runnerapi.Error
	require.NoError(t, json.Unmarshal(body, &e), string(body))
	assert.NotEmpty(t, e.Fix, string(body))
	return e
}

func TestRequest_RefusesInvalidText(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for name, text := range map[string]string{
		"no UTF-8":             "p\xff",
		"cut off":              "\xe2\x82",
		"overlong":             "\xc0\x80",
		"half a pair":          `\ud83d`,
		"half a pair and text": `\ud83dA`,
		"two first halves":     `\ud83d\ud83d`,
		"second half first":    `\ude00\ud83d`,
		"after an escape":      `\\\udc00`,
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			resp, body := r.do("PUT", secretPath, `{"data":{"a":"`+text+`"}}`)
			e := refusalOf(t, 400, resp, body)
			assert.Equal(t, runnerapi.CodeBadRequest, e.Code)
			assert.Equal(t, "body", e.Field)
			resp, body = r.do("PUT", secretPath, `{"data":{"`+text+`":"a"}}`)
			refusalOf(t, 400, resp, body)
		})
	}
	assert.Empty(t, r.agent.Backend.Calls())
	for sent, stored := range map[string]string{`\ud83d\ude00`: "😀", `\\ud83d`: `\ud83d`, "é€": "é€", `\u20ac\"\\`: `€"\`} {
		r.t = t
		resp, body := r.do("PUT", secretPath, `{"data":{"a":"`+sent+`"}}`)
		require.Equal(t, 200, resp.StatusCode, string(body))
		assert.Equal(t, stored, r.agent.Backend.SecretSpec(runnerapi.Key{Namespace: "production", Name: "s"}).Data["a"])
	}
	for _, path := range []string{"/v1/namespaces/%ff/apps", appPath + "/logs?container=%ff", "/v1/apps?%ff=a"} {
		resp, body := r.do("GET", path, "")
		refusalOf(t, 400, resp, body)
	}
	resp, body := r.do("POST", "/v1/apply?set=a&namespace=production", "a: \xff", "Content-Type", "application/yaml")
	refusalOf(t, 400, resp, body)
}

func TestRequest_RefusesAmbiguousQuery(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for query, want := range map[string]struct {
		status int
		field  string
	}{
		"dryRun=false&dryRun=true":   {422, "query.dryRun"},
		"dryRun=true&dryRun=true":    {422, "query.dryRun"},
		"dryRun=false&dry%52un=true": {422, "query.dryRun"},
		"dryRun=":                    {422, "query.dryRun"},
		"dryRun":                     {422, "query.dryRun"},
		"dryRun=1":                   {422, "query.dryRun"},
		"dryRun=True":                {422, "query.dryRun"},
		"dryRun=true%20":             {422, "query.dryRun"},
		"wait=":                      {422, "query.wait"},
		"wait=1s&wait=2s":            {422, "query.wait"},
		"dryRun=true;wait=1s":        {400, "query"},
		"dryRun=%zz":                 {400, "query"},
		"=true":                      {422, "query"},
	} {
		resp, body := r.do("PUT", appPath+"?"+query, `{"image":"a"}`)
		assert.Equal(t, want.field, refusalOf(t, want.status, resp, body).Field, query)
	}
	resp, body := r.do("POST", "/v1/apply?set=a&namespace=production&namespace=other", `{}`)
	assert.Equal(t, "query.namespace", refusalOf(t, 422, resp, body).Field)
	for _, keys := range [][]string{{"a", "b"}, {"a", "a"}, {""}} {
		req, err := http.NewRequestWithContext(ctxFor(t), http.MethodPut, "https://"+r.agent.Address+appPath, strings.NewReader(`{"image":"a"}`))
		require.NoError(t, err)
		req.Header["Content-Type"], req.Header["Idempotency-Key"] = []string{"application/json"}, keys
		assert.Equal(t, "header.Idempotency-Key", refusalOf(t, 422, answerOf(t, r, req), r.last).Field, keys)
	}
	assert.Empty(t, r.agent.Backend.Calls(), "nothing of it reached the backend")

	resp, _ = r.do("PUT", appPath+"?dry%52un=true", `{"image":"a"}`)
	assert.Equal(t, 200, resp.StatusCode)
	require.Len(t, r.agent.Backend.Calls(), 1)
	assert.True(t, r.agent.Backend.Calls()[0].DryRun)
}

func TestRequest_RefusesWrongBody(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	const image = `{"image":"a"}`
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		field              string
	}{
		"no type":              {"PUT", appPath, image, []string{"Content-Type", ""}, 415, ""},
		"type that is none":    {"PUT", appPath, image, []string{"Content-Type", ";"}, 415, ""},
		"another type":         {"PUT", appPath, image, []string{"Content-Type", "text/plain"}, 415, ""},
		"vendor's type":        {"PUT", appPath, image, []string{"Content-Type", "application/vnd.x+json"}, 415, ""},
		"another charset":      {"PUT", appPath, image, []string{"Content-Type", "application/json; charset=latin1"}, 415, ""},
		"compressed":           {"PUT", appPath, image, []string{"Content-Encoding", "gzip"}, 415, ""},
		"manifests of a type":  {"POST", "/v1/apply?set=a&namespace=production", "a: b", []string{"Content-Type", "text/plain"}, 415, ""},
		"ignored by POST":      {"POST", appPath + "/restart", `{}`, nil, 400, "body"},
		"ignored by DELETE":    {"DELETE", appPath, `{}`, nil, 400, "body"},
		"ignored by GET":       {"GET", "/v1/apps", `{}`, nil, 400, "body"},
		"null for a number":    {"POST", appPath + "/scale", `{"replicas":null}`, nil, 422, "replicas"},
		"null for a list":      {"PUT", appPath, `{"image":"a","env":null}`, nil, 422, "env"},
		"null for an object":   {"PUT", appPath, `{"image":"a","probes":null}`, nil, 422, "probes"},
		"null deep inside":     {"PUT", appPath, `{"image":"a","env":[{"name":"A","value":null}]}`, nil, 422, "env[0].value"},
		"null for all":         {"POST", appPath + "/rollback", `null`, nil, 422, "body"},
		"a fraction":           {"POST", appPath + "/scale", `{"replicas":1.5}`, nil, 422, "replicas"},
		"no number":            {"POST", appPath + "/scale", `{"replicas":1.}`, nil, 400, "body"},
		"a huge number":        {"POST", appPath + "/scale", `{"replicas":1e30}`, nil, 422, "replicas"},
		"too much for 32 bits": {"PUT", appPath, `{"image":"a","terminationGracePeriodSeconds":1e12}`, nil, 422, "terminationGracePeriodSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			resp, body := r.do(c.method, c.path, c.body, c.header...)
			assert.Equal(t, c.field, refusalOf(t, c.status, resp, body).Field)
		})
	}
	assert.Empty(t, r.agent.Backend.Calls(), "nothing of it reached the backend")
	r.t = t
	for _, body := range []string{`{"image":"a","replicas":1.0}`, `{"image":"a1.0","replicas":1e0,"ports":[{"port":8.08E3}]}`, `{"image":"a","replicas":10e-1}`} {
		resp, answer := r.do("PUT", appPath, body, "Content-Type", `application/json; charset="UTF-8"`)
		require.Equal(t, 202, resp.StatusCode, string(answer))
		var app runnerapi.App
		require.NoError(t, json.Unmarshal(answer, &app))
		assert.EqualValues(t, 1, *app.Spec.Replicas)
	}
}

func TestHead_SameAsGet(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	r := newRaw(t, agent)
	_, err := agent.Client().Apps().Deploy(ctxFor(t), web, runnerapi.AppSpec{Image: "slow"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	for path, want := range map[string]struct {
		status int
		media  string
	}{
		"/healthz":                         {200, "application/json"},
		"/openapi.json":                    {200, "application/openapi+json"},
		"/v1/apps":                         {200, "application/json"},
		appPath:                            {200, "application/json"},
		appPath + "/events?follow=true":    {200, runnerapi.EventStream},
		appPath + "/logs?follow=true":      {200, runnerapi.NDJSON},
		appPath + "/portforward?port=8080": {426, "application/problem+json"},
		"/v1/namespaces/production/apps/x": {404, "application/problem+json"},
		appPath + "/restart":               {405, "application/problem+json"},
		"/v1/apps?x=y":                     {422, "application/problem+json"},
	} {
		resp, body := r.do("HEAD", path, "")
		assert.Equal(t, want.status, resp.StatusCode, path)
		assert.Equal(t, want.media, resp.Header.Get("Content-Type"), path)
		assert.Empty(t, body)
	}
}

func TestResponse_NoZeroTime(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for _, c := range runnerapi.Calls() {
		path, ok := examplePath(c)
		if !ok || c.Upgrades() {
			continue
		}
		if c.Method != http.MethodGet {
			path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "dryRun=true"
		}
		_, answer := r.do(c.Method, path, c.Body)
		assert.NotContains(t, string(answer), "0001-01-01T", "%s %s", c.Method, path)
	}
}
