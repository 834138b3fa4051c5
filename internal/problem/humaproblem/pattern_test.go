package humaproblem

import (
	"encoding/json"
	"net/http"
	"os"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func TestPatterns_CoverRunnerAPI(t *testing.T) {
	text, err := os.ReadFile("../../../docs/openapi.json")
	require.NoError(t, err)
	var document any
	require.NoError(t, json.Unmarshal(text, &document))
	found := 0
	eachPattern(document, func(pattern string) {
		found++
		assert.Contains(t, patterns, pattern)
	})
	assert.Positive(t, found)
}

func eachPattern(in any, do func(string)) {
	switch in := in.(type) {
	case []any:
		for _, v := range in {
			eachPattern(v, do)
		}
	case map[string]any:
		if pattern, is := in["pattern"].(string); is {
			do(pattern)
		}
		for _, v := range in {
			eachPattern(v, do)
		}
	}
}

func TestPatterns_InWords(t *testing.T) {
	e := fromHuma(422, "validation failed", []error{&huma.ErrorDetail{
		Location: "body.resources.requests.cpu", Message: `expected string to match pattern ^[0-9]+(\.[0-9]+)?m?$`,
	}})
	assert.Equal(t, "has to be an amount of CPU, such as 250m, 0.5 or 2", e.Detail)
	assert.Equal(t, "resources.requests.cpu", e.Field)
}

func TestError_HidesValues(t *testing.T) {
	err := huma.NewError(http.StatusUnprocessableEntity, "validation failed",
		&huma.ErrorDetail{Message: "expected string", Location: "body.data.password", Value: "hunter2"})
	e := &problem.Error{}
	require.ErrorAs(t, err, &e)
	assert.Equal(t, "data.password", e.Field)
	assert.NotContains(t, e.Error(), "hunter2")
	assert.NotEmpty(t, e.Fix)
}
