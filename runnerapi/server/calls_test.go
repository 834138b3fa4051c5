package server_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

func TestOpenAPI_CoversRoutes(t *testing.T) {
	want := append(operations(t), "GET /healthz", "GET /openapi.json", "GET /readyz")
	slices.Sort(want)
	assert.Equal(t, want, server.Routes())
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
	return strings.ReplaceAll(path, "$NODE", runnertest.NodeName), found && !strings.Contains(path, "$OPERATION")
}
