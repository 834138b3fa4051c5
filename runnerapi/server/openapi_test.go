package server_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

//go:generate go test . -run TestOpenAPI_Committed -update

var update = flag.Bool("update", false, "write docs/openapi.json anew")

const openAPIFile = "../../docs/openapi.json"

func openAPI(t *testing.T) map[string]any {
	t.Helper()
	raw, err := server.OpenAPI("v1")
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(raw, &doc))
	return doc
}

func TestOpenAPI_Committed(t *testing.T) {
	now, err := server.OpenAPI("v1")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll("../../docs", 0o755))
		require.NoError(t, os.WriteFile(openAPIFile, now, 0o644))
	}
	committed, err := os.ReadFile(openAPIFile)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(now, committed), "%s is not what the code says; run: go generate ./runnerapi/server", openAPIFile)
}

// operations are the calls there are, as "METHOD /path".
func operations(t *testing.T) []string {
	t.Helper()
	var ops []string
	for path, methods := range openAPI(t)["paths"].(map[string]any) {
		for method := range methods.(map[string]any) {
			ops = append(ops, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(ops)
	return ops
}

var codes = regexp.MustCompile("(?:Code = |Code\\()\"([a-z_]+)\"")

// No type lists the codes, so this reads the source.
func TestErrorCodes_Documented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/runner-api.md")
	require.NoError(t, err)
	found := 0
	for _, folder := range []string{".", "..", "../client", "../../internal/problem"} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") || file == "admit.go" { // codes of the audit log
				continue
			}
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, code := range codes.FindAllSubmatch(source, -1) {
				found++
				assert.Contains(t, string(page), "`"+string(code[1])+"`", file)
			}
		}
	}
	assert.Greater(t, found, 18)
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
				assert.Equal(t, status == "429" || status == "503", headers["Retry-After"] != nil, at)
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

func TestOpenAPI_HasSchemas(t *testing.T) {
	doc := openAPI(t)
	assert.Equal(t, "3.1.0", doc["openapi"])
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, name := range []string{"App", "AppSpec", "AppStatus", "Diagnosis", "Error", "LogLine", "LogError", "Secret", "SecretSpec", "Cluster"} {
		assert.Contains(t, slices.Collect(maps.Keys(schemas)), name)
	}
	raw, err := server.OpenAPI("v1")
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "$schema", "answers carry nothing but what their types say")
}
