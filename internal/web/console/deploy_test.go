package console

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestForm_HasAllFields of the schema, in the right kind.
func TestForm_HasAllFields(t *testing.T) {
	fields, err := specFields(runnerapi.AppSpec{})
	require.NoError(t, err)
	byName := map[string]web.Field{}
	for _, f := range fields {
		byName[f.Name] = f
		assert.NotEmpty(t, f.Hint, f.Name)
	}
	spec := map[string]any{}
	whole, err := json.Marshal(filled())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(whole, &spec))
	for name := range spec {
		assert.Contains(t, byName, "spec."+name)
	}
	assert.Equal(t, "spec.image", fields[0].Name)
	assert.True(t, byName["spec.image"].Required)
	assert.Equal(t, "select", byName["spec.type"].Kind)
	assert.Contains(t, byName["spec.type"].Options, "CronJob")
	assert.Equal(t, "number", byName["spec.replicas"].Kind)
	assert.EqualValues(t, 1000, byName["spec.replicas"].Max)
	assert.Equal(t, "textarea", byName["spec.ports"].Kind)
	assert.Equal(t, "textarea", byName["spec.resources"].Kind)
	assert.Equal(t, []string{"", "true", "false"}, byName["spec.paused"].Options)
	assert.True(t, byName["spec.paused"].More)
}

// filled is a spec with many kinds of fields.
func filled() runnerapi.AppSpec {
	three, paused := int32(3), true
	return runnerapi.AppSpec{
		Type: runnerapi.TypeStatefulSet, Image: "nginx:1", Replicas: &three, Paused: &paused, Command: []string{"a b", "c"},
		Ports: []runnerapi.Port{{Port: 8080}}, PodLabels: map[string]string{"team": "shop"}, Rollback: "onFailure",
	}
}

// TestForm_RoundTrip of every field.
func TestForm_RoundTrip(t *testing.T) {
	fields, err := specFields(filled())
	require.NoError(t, err)
	sent := url.Values{}
	for _, f := range fields {
		sent.Set(f.Name, f.Value)
	}
	spec, err := specIn(sent)
	require.NoError(t, err)
	assert.Equal(t, filled(), spec)
}

// TestForm_Examples are valid.
func TestForm_Examples(t *testing.T) {
	sent := url.Values{"spec.image": {"nginx"}}
	for name, example := range examples {
		sent.Set("spec."+name, example)
	}
	spec, err := specIn(sent)
	require.NoError(t, err)
	assert.Len(t, spec.Ports, 1)
	assert.Equal(t, "hello", spec.Env[0].Value)
	assert.Equal(t, "256Mi", spec.Resources.Limits.Memory)
	assert.Equal(t, "www.example.com", spec.Ingress.Hosts[0].Host)
	assert.EqualValues(t, 4, spec.Autoscaling.Max)
	assert.NotEmpty(t, spec.Schedule.Cron)
}

// TestForm_NamesWrongField and says what to write.
func TestForm_NamesWrongField(t *testing.T) {
	for says, sent := range map[string]url.Values{
		"ports: is not JSON (fix: write a value of JSON": {"spec.image": {"nginx"}, "spec.ports": {"[8080"}},
		`ports: unknown field "ports[0].prot"`:           {"spec.image": {"nginx"}, "spec.ports": {`[{"prot": 8080}]`}},
		`ports: takes another kind of value than a JSON number (fix: write a value of JSON, such as [{"port": 8080}])`: {"spec.image": {"nginx"}, "spec.ports": {"8080"}},
		"ports.port: takes another kind of value than a JSON string":                                                   {"spec.image": {"nginx"}, "spec.ports": {`[{"port": "http"}]`}},
		"replicas: is not JSON (fix: write a value of JSON, such as 3)":                                                {"spec.image": {"nginx"}, "spec.replicas": {"many"}},
	} {
		_, err := specIn(sent)
		var p *problem.Error
		require.ErrorAs(t, err, &p)
		assert.Equal(t, problem.Invalid, p.Code)
		assert.Contains(t, err.Error(), says)
	}
}
