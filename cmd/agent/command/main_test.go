package command

import (
	"context"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"pipeops-agent": func() { os.Exit(execute(context.Background(), newRoot(), os.Stderr)) },
	})
}

// TestScripts runs the command line as an operator would.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: func(env *testscript.Env) error {
		// The race detector has each process wait a second at its end, for stragglers.
		env.Setenv("GORACE", "atexit_sleep_ms=0")
		return nil
	}})
}

// TestMain_ConfigFileImpliesRun: ./bin/agent --config config.yaml.
func TestMain_ConfigFileImpliesRun(t *testing.T) {
	for _, args := range [][]string{{"--config", "config.yaml"}, {"--config=config.yaml", "--log-level", "debug"}} {
		assert.Equal(t, append([]string{"run"}, args...), implied(args))
	}
	for _, args := range [][]string{nil, {"--help"}, {"doctor", "--config", "config.yaml"}, {"--configure"}} {
		assert.Equal(t, args, implied(args))
	}
}
