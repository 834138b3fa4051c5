package crd_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/app/crd"
)

const file = "../../../deployments/crds/pipeops.io_apps.yaml"

var update = flag.Bool("update", false, "write the file anew")

func TestCRD_UpToDate(t *testing.T) {
	isUpToDate(t, file, crd.YAML, "; if the schema changed, raise app.SchemaVersion too")
}

func TestSourceCRD_UpToDate(t *testing.T) {
	isUpToDate(t, "../../../deployments/crds/pipeops.io_sources.yaml", crd.SourceYAML, "")
}

func isUpToDate(t *testing.T, file string, made func() ([]byte, error), also string) {
	t.Helper()
	want, err := made()
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(file, want, 0o600))
	}
	got, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(got), "the file is stale: run `go generate ./internal/app/...`"+also)
}

func TestCRD_MatchesTags(t *testing.T) {
	raw, err := crd.YAML()
	require.NoError(t, err)
	var def apiextensions.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict(raw, &def))
	spec := def.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]

	assert.Equal(t, []string{"image"}, spec.Required)
	assert.Nil(t, spec.Properties["replicas"].Default, "absent is something else than 1 to a deploy that keeps the scale")
	assert.InDelta(t, 1000, *spec.Properties["replicas"].Maximum, 0)
	assert.JSONEq(t, `"Deployment"`, string(spec.Properties["type"].Enum[0].Raw))
	assert.EqualValues(t, 512, *spec.Properties["env"].MaxItems)
	assert.NotEmpty(t, spec.Properties["env"].Items.Schema.XValidations)
	assert.Nil(t, spec.AdditionalProperties)
	status := def.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"]
	for _, name := range []string{"phase", "observedGeneration", "diagnosis", "announced", "selector", "runs", "desiredReplicas"} {
		assert.Contains(t, status.Properties, name)
	}
}
