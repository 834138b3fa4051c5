package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestExample_HasDefaults: with every line in force, the file says what no file says.
func TestExample_HasDefaults(t *testing.T) {
	text := regexp.MustCompile(`(?m)^#([a-zA-Z0-9]+: )`).ReplaceAllString(string(Example()), "$1")
	values, err := parseFile("config.yaml", []byte(text))
	require.NoError(t, err)
	assert.Len(t, values, len(settings))
	assert.Empty(t, unknownKeys("config.yaml", values))
	for _, s := range settings {
		assert.Equal(t, s.def, fmt.Sprint(values[s.key]), s.key)
	}
}

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
