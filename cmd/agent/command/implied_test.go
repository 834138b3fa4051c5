package command

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestMain_ConfigFileImpliesRun: ./bin/agent --config config.yaml.
func TestMain_ConfigFileImpliesRun(t *testing.T) {
	for _, args := range [][]string{{"--config", "config.yaml"}, {"--config=config.yaml", "--log-level", "debug"}} {
		assert.Equal(t, append([]string{"run"}, args...), implied(args))
	}
	for _, args := range [][]string{nil, {"--help"}, {"doctor", "--config", "config.yaml"}, {"--configure"}} {
		assert.Equal(t, args, implied(args))
	}
}
