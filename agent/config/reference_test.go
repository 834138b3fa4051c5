package config

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestReference_ExampleIsValid(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/configuration.md")
	require.NoError(t, err)
	_, file, _ := strings.Cut(string(page), "```yaml\n")
	file, _, _ = strings.Cut(file, "```")
	values, err := parseFile("agent.yaml", []byte(file))
	require.NoError(t, err)
	assert.Empty(t, unknownKeys("agent.yaml", values))
	assert.NotEmpty(t, values)
}
