package server_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/decode"
)

// refusals are what the API says of a spec: by its tags, then by its rules.
func refusals(t *testing.T, raw string) []runnerapi.FieldError {
	t.Helper()
	var tree map[string]any
	require.NoError(t, json.Unmarshal([]byte(raw), &tree))
	tree["image"] = "example.com/web:1"
	registry := huma.NewMapRegistry("#/", huma.DefaultSchemaNamer)
	schema := registry.Schema(reflect.TypeFor[runnerapi.AppSpec](), true, "")
	result := &huma.ValidateResult{}
	huma.Validate(registry, schema, huma.NewPathBuffer([]byte{}, 0), huma.ModeWriteToServer, tree, result)
	var out []runnerapi.FieldError
	for _, err := range result.Errors {
		detail := &huma.ErrorDetail{}
		require.ErrorAs(t, err, &detail)
		out = append(out, runnerapi.FieldError{Field: strings.TrimPrefix(detail.Location, "."), Message: detail.Message})
	}
	if len(out) > 0 {
		return out
	}
	body, err := json.Marshal(tree)
	require.NoError(t, err)
	var spec runnerapi.AppSpec
	require.NoError(t, decode.Decode(body, &spec))
	return append(spec.ValidateName("web"), spec.Validate()...)
}

func TestAppSpec_RefusesInvalid(t *testing.T) {
	for name, bad := range runnertest.BadSpecs() {
		t.Run(name, func(t *testing.T) {
			errs := refusals(t, bad.JSON)
			require.NotEmpty(t, errs)
			field := strings.TrimSuffix(errs[0].Field, ".") // huma names the object where a required field is missing
			assert.True(t, strings.HasPrefix(bad.Field, field), "%+v", errs)
			if bad.Message != "" && bad.Message != "Duplicate value" {
				assert.Contains(t, errs[0].Message, bad.Message)
			}
			assert.Len(t, errs, 1, "%+v", errs)
		})
	}
	for name, good := range runnertest.GoodSpecs() {
		assert.Empty(t, refusals(t, good), name)
	}
}

func TestAppSpec_ValidatesNameAndChange(t *testing.T) {
	long := strings.Repeat("a", 53)
	assert.Empty(t, runnerapi.AppSpec{}.ValidateName(long))
	assert.NotEmpty(t, runnerapi.AppSpec{Type: runnerapi.TypeCronJob}.ValidateName(long))
	assert.NotEmpty(t, runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet}.ValidateName(long))
	assert.NotEmpty(t, runnerapi.AppSpec{}.ValidateName("1web"))

	claim := func(size, mode string) runnerapi.AppSpec {
		return runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet, Volumes: []runnerapi.Volume{
			{Name: "data", MountPath: "/" + size, Claim: &runnerapi.VolumeClaim{Size: size, AccessMode: mode}},
		}}
	}
	assert.Empty(t, runnerapi.AppSpec{}.ValidateChange(runnerapi.AppSpec{Type: runnerapi.TypeDeployment}))
	assert.Empty(t, claim("1Gi", "").ValidateChange(claim("1Gi", "ReadWriteOnce")))
	errs := claim("2Gi", "").ValidateChange(claim("1Gi", ""))
	require.Len(t, errs, 1)
	assert.Equal(t, "volumes", errs[0].Field)
	errs = runnerapi.AppSpec{Type: runnerapi.TypeJob}.ValidateChange(runnerapi.AppSpec{})
	require.Len(t, errs, 1)
	assert.Equal(t, runnerapi.FieldError{Field: "type", Message: runnerapi.TypeFixed}, errs[0])
}
