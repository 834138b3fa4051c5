package server_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem/catalog"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

func TestCalls_CoverRoutes(t *testing.T) {
	calls := make([]string, 0, len(runnerapi.Calls()))
	for _, c := range runnerapi.Calls() {
		calls = append(calls, c.Method+" "+c.Path)
	}
	slices.Sort(calls)
	assert.Equal(t, server.Routes(), calls, "runnerapi/calls.go has each route once")
}

func TestCalls_CoverClient(t *testing.T) {
	of := map[string]bool{}
	for _, c := range runnerapi.Calls() {
		for _, name := range c.Client {
			of[name] = true
		}
	}
	for handle := range reflect.TypeFor[*client.Client]().Methods() {
		if handle.Name == "Close" {
			continue
		}
		for m := range handle.Type.Out(0).Methods() {
			name := handle.Name + "()." + m.Name
			assert.True(t, of[name], "%s is in no call of runnerapi/calls.go", name)
			delete(of, name)
		}
	}
	assert.Empty(t, of, "the client has no such calls")
}

// Each call has a text and examples, and an example body where it takes one.
func TestOpenAPI_HasExamples(t *testing.T) {
	for path, methods := range openAPI(t)["paths"].(map[string]any) {
		for method, raw := range methods.(map[string]any) {
			op := raw.(map[string]any)
			name := strings.ToUpper(method) + " " + path
			assert.NotEmpty(t, op["summary"], name)
			assert.NotEmpty(t, op["description"], name)
			want := 2
			if path == "/v1/namespaces/{namespace}/apps/{name}/exec" || path == "/v1/namespaces/{namespace}/apps/{name}/portforward" {
				want = 1 // curl speaks no WebSocket
			}
			assert.Len(t, op["x-codeSamples"], want, name)
			if body, ok := op["requestBody"].(map[string]any); ok {
				assert.Contains(t, body["content"].(map[string]any)["application/json"], "example", name)
			}
		}
	}
}

// Sends the example bodies in the order of the calls.
func TestOpenAPI_ExamplesWork(t *testing.T) {
	r := newRaw(t, runnertest.Start(t, runnertest.NewBackend()))
	taken := 0
	for _, c := range runnerapi.Calls() {
		if c.Body == "" {
			continue
		}
		path, ok := examplePath(c)
		require.True(t, ok, c.ID)
		resp, answer := r.do(c.Method, path, c.Body, "Content-Type", "application/json")
		require.Less(t, resp.StatusCode, 300, "%s %s: %s", c.Method, path, answer)
		taken++
	}
	assert.Positive(t, taken)
}

// examplePath is the path of a call's example, if it needs nothing that was made before.
func examplePath(c runnerapi.Call) (string, bool) {
	_, path, found := strings.Cut(c.Curl(), `"https://$AGENT`)
	path, _, _ = strings.Cut(path, `"`)
	whole := !strings.Contains(path, "$OPERATION")
	return strings.NewReplacer("$OPERATION", "abc", "$NODE", runnertest.NodeName).Replace(path), found && whole
}

func openAPI(t *testing.T) map[string]any {
	t.Helper()
	raw, err := server.OpenAPI("v1")
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(raw, &doc))
	return doc
}

func TestOpenAPI_ResponseHeaders(t *testing.T) {
	for path, methods := range openAPI(t)["paths"].(map[string]any) {
		for method, raw := range methods.(map[string]any) {
			if path == "/v1/kubernetes/{path}" {
				continue
			}
			answers := raw.(map[string]any)["responses"].(map[string]any)
			for status, answer := range answers {
				headers, _ := answer.(map[string]any)["headers"].(map[string]any)
				at := method + " " + path + " " + status
				assert.Contains(t, headers, "Request-Id", at)
				assert.Equal(t, status[0] == '2' && method != "get", headers["Operation-Id"] != nil, at)
				assert.Equal(t, status == "409" || status == "429" || status == "503", headers["Retry-After"] != nil, at)
			}
			for _, status := range []string{"400", "401", "403", "408", "422", "429", "500", "503", "504"} {
				assert.Contains(t, answers, status, "%s %s", method, path)
			}
			body, takes := raw.(map[string]any)["requestBody"].(map[string]any)
			for _, status := range []string{"413", "415"} {
				assert.Equal(t, takes, answers[status] != nil, "%s %s %s", method, path, status)
			}
			assert.Equal(t, takes, body["x-maxBytes"] != nil, "%s %s", method, path)
		}
	}
}

// The catalog of errors has each cause.
func TestDiagnosis_CausesDocumented(t *testing.T) {
	var causes []string
	for _, e := range catalog.All() {
		if strings.HasPrefix(e.Code, "PO-2") {
			causes = append(causes, e.Name)
		}
	}
	schemas := openAPI(t)["components"].(map[string]any)["schemas"].(map[string]any)
	properties := schemas["Diagnosis"].(map[string]any)["properties"].(map[string]any)
	var documented []string
	for _, cause := range properties["cause"].(map[string]any)["enum"].([]any) {
		documented = append(documented, cause.(string))
	}
	assert.ElementsMatch(t, causes, documented)
}

func TestDriftWhat(t *testing.T) {
	for want, d := range map[string]runnerapi.Drift{
		"service/web was deleted":                   {Object: "service/web", Deleted: true},
		"service/web was changed":                   {Object: "service/web"},
		"service/web was changed (spec.type, spec)": {Object: "service/web", Fields: []string{"spec.type", "spec"}},
	} {
		assert.Equal(t, want, d.What())
	}
}
