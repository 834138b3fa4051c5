package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

// raw calls the agent without the client, as another language's would.
type raw struct {
	t     *testing.T
	agent *runnertest.Agent
	http  *http.Client
	last  []byte
}

func newRaw(t *testing.T, agent *runnertest.Agent) *raw {
	t.Helper()
	cert, err := agent.ClientConfig().Certificate()
	require.NoError(t, err)
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: agent.CA.Pool, ServerName: runnertest.ServerName, Certificates: []tls.Certificate{*cert},
	}}
	t.Cleanup(tr.CloseIdleConnections)
	return &raw{t: t, agent: agent, http: &http.Client{Transport: tr}}
}

func (r *raw) do(method, path, body string, header ...string) (*http.Response, []byte) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctxFor(r.t), method, "https://"+r.agent.Address+path, strings.NewReader(body))
	require.NoError(r.t, err)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		if req.Header.Set(header[i], header[i+1]); header[i] == "Content-Type" && header[i+1] == "" {
			req.Header.Del(header[i])
		}
	}
	resp, err := r.http.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	assert.NotEmpty(r.t, resp.Header.Get("Request-Id"), "%s %s", method, path)
	return resp, raw
}

const appPath = "/v1/namespaces/production/apps/web"

func TestRequest_ReportsErrors(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	big := `{"image":"a","args":["` + strings.Repeat("x", runnerapi.MaxAppBody) + `"]}`
	deep := strings.Repeat("[", 200_000)
	const image = `{"image":"a"}`
	for name, tc := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		field, says        string
	}{
		"no JSON":              {"PUT", appPath, "{\n \"image\": nope}", nil, 400, "body", "line 2, column"},
		"too deep":             {"PUT", appPath, deep, nil, 400, "body", ""},
		"no body":              {"PUT", appPath, "", nil, 400, "", "body is required"},
		"image missing":        {"PUT", appPath, `{}`, nil, 422, "image", "required property image"},
		"unknown field":        {"PUT", appPath, `{"image":"a","imagePullPolicy":"Always"}`, nil, 422, "imagePullPolicy", "unexpected property"},
		"wrong case":           {"PUT", appPath, `{"Image":"a"}`, nil, 0, "", "Image"},
		"twice":                {"PUT", appPath, `{"image":"a","image":"b"}`, nil, 400, "body", `"image"`},
		"wrong type":           {"PUT", appPath, `{"image":7}`, nil, 422, "image", "expected string"},
		"port out of range":    {"PUT", appPath, `{"image":"a","ports":[{"port":70000}]}`, nil, 422, "ports[0].port", "65535"},
		"semantics":            {"PUT", appPath, `{"image":"a","ports":[{"port":1},{"port":2}]}`, nil, 422, "ports[0].name", "every port needs a name"},
		"too large":            {"PUT", appPath, big, nil, 413, "", "1048576"},
		"bad name":             {"PUT", "/v1/namespaces/production/apps/Web", `{"image":"a"}`, nil, 422, "path.name", "has to be"},
		"bad namespace":        {"PUT", "/v1/namespaces/-/apps/web", `{"image":"a"}`, nil, 422, "path.namespace", "has to be"},
		"escaped slash":        {"GET", "/v1/namespaces/production/apps/a%2Fb", "", nil, 422, "path.name", "has to be"},
		"bad wait":             {"PUT", appPath + "?wait=1h", `{"image":"a"}`, nil, 422, "query.wait", "not a time to wait"},
		"unknown parameter":    {"PUT", appPath + "?dryrun=true", `{"image":"a"}`, nil, 422, "query.dryrun", "unknown query parameter"},
		"bad tail":             {"GET", appPath + "/logs?tail=-2", "", nil, 422, "query.tail", ">= -1"},
		"bad since":            {"GET", appPath + "/logs?since=yesterday", "", nil, 422, "query.since", "neither a duration"},
		"follow and previous":  {"GET", appPath + "/logs?follow=true&previous=true", "", nil, 422, "query.previous", ""},
		"no replicas":          {"POST", appPath + "/scale", `{}`, nil, 422, "replicas", "replicas, or min and max"},
		"no such path":         {"GET", "/v1/nothing", "", nil, 404, "", "/v1/nothing"},
		"no such method":       {"PATCH", appPath, `{}`, nil, 405, "", "PATCH"},
		"secret key":           {"PUT", "/v1/namespaces/production/secrets/s", `{"data":{"a b":"hunter2"}}`, nil, 422, "data.a%20b", "a key may have"},
		"secret value":         {"PUT", "/v1/namespaces/production/secrets/s", `{"data":{"a":{"b":"hunter2"}}}`, nil, 422, "data.a", "expected string"},
		"no type":              {"PUT", appPath, image, []string{"Content-Type", ""}, 415, "", ""},
		"type that is none":    {"PUT", appPath, image, []string{"Content-Type", ";"}, 415, "", ""},
		"another type":         {"PUT", appPath, image, []string{"Content-Type", "text/plain"}, 415, "", ""},
		"vendor's type":        {"PUT", appPath, image, []string{"Content-Type", "application/vnd.x+json"}, 415, "", ""},
		"another charset":      {"PUT", appPath, image, []string{"Content-Type", "application/json; charset=latin1"}, 415, "", ""},
		"compressed":           {"PUT", appPath, image, []string{"Content-Encoding", "gzip"}, 415, "", ""},
		"ignored by POST":      {"POST", appPath + "/restart", `{}`, nil, 400, "body", ""},
		"ignored by DELETE":    {"DELETE", appPath, `{}`, nil, 400, "body", ""},
		"ignored by GET":       {"GET", "/v1/apps", `{}`, nil, 400, "body", ""},
		"null for a number":    {"POST", appPath + "/scale", `{"replicas":null}`, nil, 422, "replicas", ""},
		"null for a list":      {"PUT", appPath, `{"image":"a","env":null}`, nil, 422, "env", ""},
		"null for an object":   {"PUT", appPath, `{"image":"a","probes":null}`, nil, 422, "probes", ""},
		"null deep inside":     {"PUT", appPath, `{"image":"a","env":[{"name":"A","value":null}]}`, nil, 422, "env[0].value", ""},
		"null for all":         {"POST", appPath + "/rollback", `null`, nil, 422, "body", ""},
		"a fraction":           {"POST", appPath + "/scale", `{"replicas":1.5}`, nil, 422, "replicas", ""},
		"no number":            {"POST", appPath + "/scale", `{"replicas":1.}`, nil, 400, "body", ""},
		"a huge number":        {"POST", appPath + "/scale", `{"replicas":1e30}`, nil, 422, "replicas", ""},
		"too many values":      {"PUT", "/v1/namespaces/production/configmaps/a", `{"data":{"a":"` + strings.Repeat("x", 1<<20) + `","b":"c"}}`, nil, 422, "data", "the values have 1048577 bytes"},
		"too much for 32 bits": {"PUT", appPath, `{"image":"a","terminationGracePeriodSeconds":1e12}`, nil, 422, "terminationGracePeriodSeconds", ""},
		"YAML":                 {"PUT", appPath, "image: a", []string{"Content-Type", "application/yaml"}, 415, "", ""},
		"a long key":           {"PUT", appPath, image, []string{"Idempotency-Key", strings.Repeat("k", 129)}, 422, "header.Idempotency-Key", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r.t = t
			resp, body := r.do(tc.method, tc.path, tc.body, tc.header...)
			if tc.status != 0 {
				assert.Equal(t, tc.status, resp.StatusCode, string(body))
			}
			assert.GreaterOrEqual(t, resp.StatusCode, 400)
			assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			var e runnerapi.Error
			require.NoError(t, json.Unmarshal(body, &e), string(body))
			assert.Equal(t, resp.Header.Get("Request-Id"), e.RequestID)
			assert.NotEmpty(t, e.Code)
			if tc.field != "" {
				assert.Equal(t, tc.field, e.Field, string(body))
			}
			assert.Contains(t, string(body), strings.ReplaceAll(tc.says, `"`, `\"`))
			assert.NotContains(t, string(body), "hunter2")
			assert.NotEmpty(t, e.Fix, string(body))
		})
	}
	assert.Empty(t, r.agent.Backend.Calls(), "nothing of it reached the backend")
}

func TestRequest_Headers(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	resp, _ := r.do("PUT", appPath, `{"image":"a"}`, "Content-Type", "application/json; charset=utf-8", "Idempotency-Key", "k-1")
	assert.Equal(t, 202, resp.StatusCode)
	resp, _ = r.do("PATCH", appPath, "")
	assert.Equal(t, "GET, HEAD, PUT, DELETE", resp.Header.Get("Allow"))
	for path, allow := range map[string]string{appPath: "GET, HEAD, PUT, DELETE", "/v1/namespaces/production/apps": "GET, HEAD", "/v1/namespaces": "GET, HEAD"} {
		for _, method := range []string{"get", "put", "PUT", "FOO"} {
			if path == appPath && method == "PUT" {
				continue
			}
			resp, _ := r.do(method, path, "{}")
			assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode, "%s %s", method, path)
			assert.Equal(t, allow, resp.Header.Get("Allow"), "%s %s", method, path)
			resp, _ = r.do(method, "/v1/nowhere", "{}")
			assert.Equal(t, http.StatusNotFound, resp.StatusCode, "%s", method)
		}
	}
}

func TestWait_ReturnsOutcome(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for query, tc := range map[string]struct {
		image  string
		status int
		phase  runnerapi.Phase

		outcome runnerapi.OperationState
	}{
		"?wait=10s":               {"shop/web:1", 200, runnerapi.PhaseHealthy, runnerapi.OperationSucceeded},
		"?wait=11s":               {"missing", 200, runnerapi.PhaseFailed, runnerapi.OperationFailed}, // the outcome is data, not an error
		"?wait=200ms":             {"slow", 202, runnerapi.PhaseProgressing, runnerapi.OperationPending},
		"":                        {"shop/web:2", 202, runnerapi.PhaseProgressing, ""},
		"?dryRun=true&wait=10s":   {"shop/web:3", 200, runnerapi.PhaseProgressing, ""},
		"?wait=12s&dryRun=false":  {"shop/web:4", 200, runnerapi.PhaseHealthy, runnerapi.OperationSucceeded},
		"?wait=200ms&dryRun=true": {"slow", 200, runnerapi.PhaseProgressing, ""},
	} {
		resp, body := r.do("PUT", appPath+query, fmt.Sprintf(`{"image":%q}`, tc.image))
		assert.Equal(t, tc.status, resp.StatusCode, query)
		var app runnerapi.App
		require.NoError(t, json.Unmarshal(body, &app))
		assert.Equal(t, tc.phase, app.Status.Phase, query)
		waited := strings.Contains(query, "wait=") && !strings.Contains(query, "dryRun=true")
		require.Equal(t, waited, app.Outcome != nil, query)
		if waited {
			assert.Equal(t, tc.outcome, app.Outcome.State, query)
		}
	}
}

// A later write comes during the wait.
func TestWait_ReportsOwnWrite(t *testing.T) {
	for kind, body := range map[string]string{
		"apps": `{"image":"slow"}`, "jobs": `{"image":"slow"}`, "pipelines": `{"image":"slow","jobs":[{"name":"test"}]}`,
	} {
		for image, want := range map[string]runnerapi.OperationState{
			"slow":    runnerapi.OperationSuperseded, // the later write has no outcome yet
			"web:2":   runnerapi.OperationSuperseded,
			"missing": runnerapi.OperationSuperseded,
			"":        runnerapi.OperationPending, // there is no later write
		} {
			t.Run(kind+" "+image, func(t *testing.T) {
				t.Parallel()
				backend, path := runnertest.NewBackend(), "/v1/namespaces/production/"+kind+"/web"
				var followed atomic.Bool
				backend.Intercept = func(ctx context.Context, call runnertest.Call) error {
					if image == "" || call.Verb != "Apps.Wait" || followed.Swap(true) {
						return nil
					}
					app, err := backend.Apps().Get(ctx, call.Key)
					app.Spec.Image = image
					_, failed := backend.Apps().Deploy(ctx, call.Key, app.Spec, runnerapi.WriteOptions{})
					return errors.Join(err, failed)
				}
				r := newRaw(t, runnertest.Start(t, backend))
				for range 2 { // also where it is sent again
					resp, answer := r.do("PUT", path+"?wait=100ms", body, "Idempotency-Key", "mine")
					var got struct {
						Operation string
						Outcome   runnerapi.Outcome
					}
					require.NoError(t, json.Unmarshal(answer, &got), string(answer))
					assert.Equal(t, want, got.Outcome.State, string(answer))
					assert.Equal(t, want == runnerapi.OperationPending, resp.StatusCode == http.StatusAccepted, string(answer))
					_, answer = r.do("GET", "/v1/operations/"+got.Operation, "")
					assert.Contains(t, string(answer), `"state":"`+string(want)+`"`)
				}
			})
		}
	}
}

func TestHealth_NeedsNoCertificate(t *testing.T) {
	h := server.New(runnertest.AllowAll{}, server.Config{Version: "v1", Log: zerolog.Nop(), Ready: func(context.Context) error {
		return fmt.Errorf("the tunnel is down")
	}})
	for path, status := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/apps": 401, "/openapi.json": 200, "/": 404} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodGet, path, nil))
		assert.Equal(t, status, rec.Code, path)
	}
	rec := httptest.NewRecorder()
	server.NewHealth("v1", nil, nil).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	assert.Equal(t, 200, rec.Code)
	rec = httptest.NewRecorder()
	server.NewHealth("v1", nil, nil).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v1/apps", nil))
	assert.Equal(t, 404, rec.Code)
}

func TestRequest_TimesOut(t *testing.T) {
	b := runnertest.NewBackend()
	b.Intercept = func(ctx context.Context, _ runnertest.Call) error { <-ctx.Done(); return ctx.Err() }
	h := server.New(runnertest.AllowAll{}, server.Config{
		Apps: b.Apps(), Cluster: b.Cluster(), TrustDomain: runnertest.TrustDomain, CallTimeout: 50 * time.Millisecond, Log: zerolog.Nop(),
	})
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, verified(t, http.MethodGet, "/v1/cluster"))
	assert.Equal(t, 504, rec.Code)
	assert.Contains(t, rec.Body.String(), `"code":"timeout"`)
}

func TestRequest_RecoversPanic(t *testing.T) {
	b := runnertest.NewBackend()
	b.Intercept = func(context.Context, runnertest.Call) error { panic("secret detail") }
	var log strings.Builder
	h := server.New(runnertest.AllowAll{}, server.Config{Apps: b.Apps(), Cluster: b.Cluster(), TrustDomain: runnertest.TrustDomain, Log: zerolog.New(&log)})
	for _, path := range []string{"/v1/cluster", appPath + "/logs"} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, verified(t, http.MethodGet, path))
		assert.Equal(t, 500, rec.Code, path)
		assert.NotContains(t, rec.Body.String(), "secret detail")
		assert.Contains(t, log.String(), "panic")
	}
}

func TestRequest_LogsWithoutBody(t *testing.T) {
	b := runnertest.NewBackend()
	var log strings.Builder
	h := server.New(runnertest.AllowAll{}, server.Config{Secrets: b.Secrets(), TrustDomain: runnertest.TrustDomain, Log: zerolog.New(&log)})
	req := verified(t, http.MethodPut, "/v1/namespaces/production/secrets/s?dryRun=true")
	req.Body, req.ContentLength = io.NopCloser(strings.NewReader(`{"data":{"a":"hunter2"}}`)), -1
	req.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(httptest.NewRecorder(), req)
	assert.Equal(t, 1, strings.Count(log.String(), "\n"))
	for _, want := range []string{`"route":"/v1/namespaces/{namespace}/secrets/{name}"`, `"status":200`, `"runner":"tester"`, `"requestId":"`} {
		assert.Contains(t, log.String(), want)
	}
	assert.NotContains(t, log.String(), "hunter2")
}

// answerOf sends a request as it is; the answer's body is then in r.last.
func answerOf(t *testing.T, r *raw, req *http.Request) *http.Response {
	t.Helper()
	resp, err := r.http.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	r.last, err = io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp
}

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

// TestRequest_BoundsValuesNotEscapes has 300 kB of NULs, which JSON writes in 1.8 MB.
func TestRequest_BoundsValuesNotEscapes(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for _, path := range []string{"/v1/namespaces/production/secrets/a", "/v1/namespaces/production/configmaps/a"} {
		resp, answer := r.do("PUT", path, `{"data":{"a":"`+strings.Repeat(`\u0000`, 300_000)+`"}}`)
		assert.Equal(t, 200, resp.StatusCode, string(answer))
	}
}

func TestRequest_AcceptsWholeNumbers(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	for _, body := range []string{`{"image":"a","replicas":1.0}`, `{"image":"a1.0","replicas":1e0,"ports":[{"port":8.08E3}]}`, `{"image":"a","replicas":10e-1}`} {
		resp, answer := r.do("PUT", appPath, body, "Content-Type", `application/json; charset="UTF-8"`)
		require.Equal(t, 202, resp.StatusCode, string(answer))
		var app runnerapi.App
		require.NoError(t, json.Unmarshal(answer, &app))
		assert.EqualValues(t, 1, *app.Spec.Replicas)
	}
}

// TestLists_Parts has more Apps than the client asks for at a time.
func TestLists_Parts(t *testing.T) {
	b := runnertest.NewBackend()
	for n := range 501 {
		key := runnerapi.Key{Namespace: "production", Name: fmt.Sprintf("app-%03d", n)}
		_, err := b.Apps().Deploy(t.Context(), key, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
		require.NoError(t, err)
	}
	agent := runnertest.Start(t, b)
	all, err := agent.Client().Apps().List(ctxFor(t), "")
	require.NoError(t, err)
	require.Len(t, all, 501)
	assert.Equal(t, "app-500", all[500].Name)

	r := newRaw(t, agent)
	_, answer := r.do("GET", "/v1/namespaces/production/apps?limit=2", "")
	var part runnerapi.AppList
	require.NoError(t, json.Unmarshal(answer, &part))
	require.Len(t, part.Items, 2)
	_, answer = r.do("GET", "/v1/namespaces/production/apps?limit=1000&continue="+part.Continue, "")
	part = runnerapi.AppList{}
	require.NoError(t, json.Unmarshal(answer, &part))
	assert.Len(t, part.Items, 499)
	assert.Empty(t, part.Continue)
	for query, field := range map[string]string{"limit=1001": "query.limit", "limit=1&continue=A": "query.continue", "labelSelector=a": "query.labelSelector"} {
		resp, answer := r.do("GET", "/v1/apps?"+query, "")
		assert.Equal(t, field, refusalOf(t, 422, resp, answer).Field, query)
	}
	resp, answer := r.do("GET", "/v1/namespaces?labelSelector=env%3Dprod", "")
	assert.Equal(t, 200, resp.StatusCode, string(answer))
	assert.NotContains(t, string(answer), "production")
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
