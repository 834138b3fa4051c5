package command

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestServiceEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.env")
	text := "# a comment\n\nCLUSTER_NAME=prod-1\n  LOG_LEVEL=\"debug\"\nA='b=c'\n#HTTPS_PROXY=x\nnonsense\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	settings, err := readEnvironment(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"CLUSTER_NAME": "prod-1", "LOG_LEVEL": "debug", "A": "b=c"}, settings)
}
