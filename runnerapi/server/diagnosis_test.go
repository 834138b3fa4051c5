package server_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/constants"
)

// Compares the constants with the OpenAPI document and with the table for people.
func TestDiagnosis_CausesDocumented(t *testing.T) {
	causes := constants.OfType(t, "..", "Cause")
	schemas := openAPI(t)["components"].(map[string]any)["schemas"].(map[string]any)
	properties := schemas["Diagnosis"].(map[string]any)["properties"].(map[string]any)
	var documented []string
	for _, cause := range properties["cause"].(map[string]any)["enum"].([]any) {
		documented = append(documented, cause.(string))
	}
	assert.ElementsMatch(t, causes, documented)
	doc, err := os.ReadFile("../../docs/reference/runner-api.md")
	require.NoError(t, err)
	for _, cause := range causes {
		assert.Regexp(t, "(?m)^\\| .*`"+cause+"`.* \\|", string(doc), "docs/reference/runner-api.md lacks a row")
	}
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
