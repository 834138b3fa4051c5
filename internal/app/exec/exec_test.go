package exec

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestExec_NamesMissingProgram(t *testing.T) {
	for runtime, says := range map[string]string{
		"runc":       `Internal error occurred: error executing command in container: failed to exec in container: failed to start exec "0381": OCI runtime exec failed: exec failed: unable to start container process: exec: "psql": executable file not found in $PATH: unknown`,
		"runc, path": `Internal error occurred: OCI runtime exec failed: exec failed: unable to start container process: exec: "psql": stat psql: no such file or directory: unknown`,
		"crun":       "Internal error occurred: command error: executable file `psql` not found in $PATH: No such file or directory",
	} {
		assert.ErrorContains(t, insideProblem(errors.New(says), "web-1"), `pod web-1: there is no program "psql" in the container (fix: name one that is there`, runtime)
	}
	assert.ErrorContains(t, insideProblem(errors.New("container not running"), "web-1"), "pod web-1: container not running")
}
