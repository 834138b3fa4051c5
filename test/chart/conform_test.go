package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestChart_ConformsToSchemas validates what the charts make of all their example values with
// kubeconform, against the schemas of the cluster's own API server: there is no
// other source of them without a network. Strict: an unknown field is an error.
func TestChart_ConformsToSchemas(t *testing.T) {
	sys := system(t)
	raw, err := sys.Kube.Clientset.Discovery().RESTClient().Get().AbsPath("/openapi/v2").
		SetHeader("Accept", "application/json").DoRaw(t.Context())
	require.NoError(t, err)
	dir := t.TempDir()
	writeSchemas(t, raw, dir)
	check := func(stdin string, files ...string) error {
		stdout, stderr, err := try(t, stdin, "kubeconform", append([]string{
			"-strict", "-summary", "-schema-location", filepath.Join(dir, "{{ .ResourceKind }}-{{ .ResourceAPIVersion }}.json"),
		}, files...)...)
		if err != nil {
			err = fmt.Errorf("%w: %s%s", err, stdout, stderr)
		}
		return err
	}
	var manifests []string // checked together: reading the schemas takes the longest
	for _, chart := range []string{agentChart, controlChart} {
		for _, file := range valuesFiles(t, chart) {
			manifest := filepath.Join(t.TempDir(), filepath.Base(chart)+"-"+filepath.Base(file))
			text := helm(t, "template", filepath.Base(chart), chart, "--namespace", "pipeops", "--values", file)
			require.NoError(t, os.WriteFile(manifest, []byte(text), 0o600))
			manifests = append(manifests, manifest)
		}
	}
	require.NoError(t, check("", manifests...))
}

// writeSchemas makes of an API server's OpenAPI document one file for each kind,
// as kubeconform wants it.
func writeSchemas(t *testing.T, openapi []byte, dir string) {
	t.Helper()
	var document struct {
		Definitions map[string]map[string]any `json:"definitions"`
	}
	require.NoError(t, json.Unmarshal(openapi, &document))
	for name, definition := range document.Definitions {
		tighten(definition)
		switch name {
		case "io.k8s.apimachinery.pkg.util.intstr.IntOrString":
			definition["type"] = []string{"string", "integer"}
		case "io.k8s.apimachinery.pkg.api.resource.Quantity":
			definition["type"] = []string{"string", "number"}
		}
	}
	for name, definition := range document.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 { // those of many kinds are options of calls
			continue
		}
		kind := kinds[0].(map[string]any)
		schema := map[string]any{"$ref": "#/definitions/" + name, "definitions": needed(document.Definitions, name)}
		text, err := json.Marshal(schema)
		require.NoError(t, err)
		file := strings.ToLower(fmt.Sprintf("%s-%s.json", kind["kind"], kind["version"]))
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), text, 0o600))
	}
}

// tighten allows no field that a definition does not name.
func tighten(definition map[string]any) {
	delete(definition, "format") // Kubernetes' own, like int-or-string
	if properties, ok := definition["properties"].(map[string]any); ok {
		if _, open := definition["additionalProperties"]; !open {
			definition["additionalProperties"] = false
		}
		for _, property := range properties {
			tighten(property.(map[string]any))
		}
	}
}

// needed are the definitions that one refers to, directly or not.
func needed(all map[string]map[string]any, name string) map[string]map[string]any {
	out := map[string]map[string]any{}
	var follow func(value any)
	add := func(name string) {
		if _, done := out[name]; !done {
			out[name] = all[name]
			follow(all[name])
		}
	}
	follow = func(value any) {
		switch v := value.(type) {
		case map[string]any:
			if ref, ok := v["$ref"].(string); ok {
				add(strings.TrimPrefix(ref, "#/definitions/"))
			}
			for nested := range maps.Values(v) {
				follow(nested)
			}
		case []any:
			for _, nested := range v {
				follow(nested)
			}
		}
	}
	add(name)
	return out
}
