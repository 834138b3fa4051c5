package runnerapi_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

//go:generate go test . -run TestOpenAPIIsCommitted -update

var update = flag.Bool("update", false, "write docs/openapi.json anew")

const openAPIFile = "../docs/openapi.json"

func openAPI(t *testing.T) map[string]any {
	t.Helper()
	raw, err := runnerapi.OpenAPI("v1")
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, json.Unmarshal(raw, &doc))
	return doc
}

func TestOpenAPIIsCommitted(t *testing.T) {
	now, err := runnerapi.OpenAPI("v1")
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll("../docs", 0o755))
		require.NoError(t, os.WriteFile(openAPIFile, now, 0o644))
	}
	committed, err := os.ReadFile(openAPIFile)
	require.NoError(t, err)
	if !bytes.Equal(now, committed) {
		t.Errorf("%s is not what the code says; run: go generate ./runnerapi", openAPIFile)
	}
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

func TestTheDocumentIsWhatClientsNeed(t *testing.T) {
	doc := openAPI(t)
	assert.Equal(t, "3.1.0", doc["openapi"])
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	for _, name := range []string{"App", "AppSpec", "AppStatus", "Diagnosis", "Error", "LogLine", "LogError", "Secret", "SecretSpec", "Cluster"} {
		assert.Contains(t, slices.Collect(maps.Keys(schemas)), name)
	}
	raw, err := runnerapi.OpenAPI("v1")
	require.NoError(t, err)
	assert.NotContains(t, string(raw), "$schema", "answers carry nothing but what their types say")
}
