package runnerapi_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestWarnings_DoubledDollars(t *testing.T) {
	env := []runnerapi.EnvVar{{Name: "A", Value: "pa$$w$rd"}, {Name: "B", Value: "$$(A) $(A)"}}
	init := []runnerapi.InitContainer{{Args: []string{"a", "$$$$"}}}
	const end = ": Kubernetes takes $$ for one $; write $$$$ for two"
	want := []string{`command[0] runs as "echo $"` + end, `env[0].value (A) runs as "pa$w$rd"` + end, `initContainers[0].args[1] runs as "$$"` + end}
	assert.Equal(t, want, runnerapi.JobSpec{Command: []string{"echo $$"}, Surroundings: runnerapi.Surroundings{Env: env}, InitContainers: init}.AppSpec().Warnings())
	jobs := []runnerapi.PipelineJob{{Args: []string{"$$"}}}
	assert.Equal(t, []string{`jobs[0].args[0] runs as "$"` + end}, runnerapi.AppSpec{Env: env[1:], Jobs: jobs}.Warnings())
}
