package operatorapi_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/test/golden"
)

//go:generate go test . -run UpToDate -update

const (
	openAPIFile = "../../../docs/openapi-operators.json"
	page        = "../../../docs/reference/operator-api.md"
	made        = "go generate ./internal/controlplane/operatorapi"
	tableBegin  = "<!-- calls: " + made + " -->\n"
	tableEnd    = "<!-- end -->\n"
)

func TestOpenAPI_UpToDate(t *testing.T) {
	now, err := operatorapi.OpenAPI("v1")
	require.NoError(t, err)
	golden.Check(t, openAPIFile, string(now), made)
}

func TestCallTable_UpToDate(t *testing.T) {
	have, err := os.ReadFile(page)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(have), tableBegin)
	require.True(t, ok, "%s lacks %s", page, tableBegin)
	_, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok, "%s lacks %s", page, tableEnd)
	var table strings.Builder
	table.WriteString("\n| call | role | command | |\n|---|---|---|---|\n")
	for _, c := range operatorapi.Calls() {
		fmt.Fprintf(&table, "| `%s %s` | %s | `%s` | %s |\n", c.Method, c.Path, c.Role, c.Command, c.Summary)
	}
	golden.Check(t, page, before+tableBegin+table.String()+"\n"+tableEnd+after, made)
}

func TestCalls_Described(t *testing.T) {
	seen := map[string]bool{}
	ofOneself := []string{operatorapi.CreateConsoleCode.ID, operatorapi.RenewOperator.ID}
	for _, c := range operatorapi.Calls() {
		assert.False(t, seen[c.ID], "%s is there twice", c.ID)
		seen[c.ID] = true
		assert.Contains(t, administration.Roles, c.Role, c.ID)
		assert.NotEmpty(t, c.Summary, c.ID)
		assert.NotEmpty(t, c.Command, c.ID)
		assert.False(t, c.Changes() && c.Role == administration.RoleViewer && !slices.Contains(ofOneself, c.ID), "%s: a viewer changes nothing", c.ID)
	}
	text, err := operatorapi.OpenAPI("v1")
	require.NoError(t, err)
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string                    `json:"operationId"`
			Role        string                    `json:"x-role"`
			Parameters  []struct{ Name string }   `json:"parameters"`
			Responses   map[string]map[string]any `json:"responses"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &doc))
	for path, methods := range doc.Paths {
		for method, op := range methods {
			assert.True(t, seen[op.OperationID], "%s %s", method, path)
			delete(seen, op.OperationID)
			assert.NotEmpty(t, op.Role, op.OperationID)
			names := map[string]bool{}
			for _, p := range op.Parameters {
				names[p.Name] = true
			}
			changes := method != "get"
			assert.Equal(t, changes, names["dryRun"], op.OperationID)
			assert.Equal(t, changes, names["Idempotency-Key"], op.OperationID)
		}
	}
	assert.Empty(t, seen, "not in the document")
}

func FuzzDecode(f *testing.F) {
	for _, text := range []string{`{"name":"a"}`, `{"name":"a","name":"b"}`, `{"Name":"a"}`, `[[[[`, `{"uses":1e3}`, "{\"name\":\"\xff\"}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var body operatorapi.CreateTokenBody
		if operatorapi.Decode(text, &body) != nil {
			return
		}
		again, err := json.Marshal(body)
		require.NoError(t, err)
		var same operatorapi.CreateTokenBody
		require.NoError(t, operatorapi.Decode(again, &same))
	})
}
