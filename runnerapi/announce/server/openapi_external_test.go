package server_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// The document is made here, and the call belongs to package login.
func TestOpenAPI_CertificateCall(t *testing.T) {
	raw, err := server.OpenAPI("v1")
	require.NoError(t, err)
	var doc struct {
		Paths map[string]map[string]struct {
			Description string
			Responses   map[string]struct{ Headers map[string]any }
		}
		Components struct {
			Schemas map[string]struct{ Properties map[string]any }
		}
	}
	require.NoError(t, json.Unmarshal(raw, &doc))
	call := doc.Paths[login.Path]["post"]
	assert.NotEmpty(t, call.Description)
	assert.Contains(t, call.Responses["200"].Headers, login.HeaderIssuer)
	var fields []string
	for f := range reflect.TypeFor[login.Answer]().Fields() {
		fields = append(fields, f.Tag.Get("json"))
	}
	assert.ElementsMatch(t, fields, slices.Collect(maps.Keys(doc.Components.Schemas["CertificateBody"].Properties)))
}
