package server_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// The document is made here, and the calls belong to package login.
func TestOpenAPI_CertificateCalls(t *testing.T) {
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
	for _, path := range []string{login.Path, login.ExchangePath} {
		call := doc.Paths[path]["post"]
		assert.NotEmpty(t, call.Description)
		assert.Contains(t, call.Responses["200"].Headers, login.HeaderIssuer)
	}
	for schema, body := range map[string]any{"CertificateBody": login.Answer{}, "ExchangeBody": login.ExchangeRequest{}, "ExchangedBody": login.Exchanged{}} {
		text, err := json.Marshal(body)
		require.NoError(t, err)
		fields := map[string]any{}
		require.NoError(t, json.Unmarshal(text, &fields))
		assert.ElementsMatch(t, slices.Collect(maps.Keys(fields)), slices.Collect(maps.Keys(doc.Components.Schemas[schema].Properties)), schema)
	}
}
