package command

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/scripts/reference/clidoc"
	check "github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

//go:generate go test . -run TestReference_UpToDate -update

func TestReference_UpToDate(t *testing.T) {
	reference := clidoc.Reference{File: "../../../docs/reference/agent-cli.md", Made: "go generate ./cmd/agent/command"}
	check.Check(t, reference, newRoot())
}

// TestVerbs: a command of a noun has a verb of the table.
func TestVerbs(t *testing.T) {
	assert.Greater(t, check.CheckVerbs(t, "../../../docs/reference/commands.md", newRoot()), 10)
}
