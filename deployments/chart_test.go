package deployments_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

//go:generate go run ../scripts/reference -root ..

// TestChart_SchemaMatchesValues: what a schema allows is in values.yaml, and the other way round.
func TestChart_SchemaMatchesValues(t *testing.T) {
	for _, chart := range []string{"pipeops-agent", "pipeops-controlplane"} {
		dir := filepath.Join("helm", chart)
		text, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
		require.NoError(t, err)
		var schema map[string]any
		require.NoError(t, json.Unmarshal(text, &schema))
		values := map[string]any{}
		text, err = os.ReadFile(filepath.Join(dir, "values.yaml"))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &values))
		sameKeys(t, chart, schema, values)
	}
}

func sameKeys(t *testing.T, path string, schema map[string]any, values map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if len(values) == 0 || len(properties) == 0 || strings.HasSuffix(path, "Probe") {
		return // as in Kubernetes, or as in another file
	}
	assert.Equal(t, slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(values)), path)
	for key, below := range properties {
		nested, _ := values[key].(map[string]any)
		if below, ok := below.(map[string]any); ok {
			sameKeys(t, path+"."+key, below, nested)
		}
	}
}
