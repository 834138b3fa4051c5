package command

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/scripts/reference/clidoc"
	check "github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

//go:generate go test . -run TestReference_UpToDate -update

func TestReference_UpToDate(t *testing.T) {
	reference := clidoc.Reference{File: "../../../docs/reference/controlplane-cli.md", Made: "go generate ./cmd/controlplane/command"}
	check.Check(t, reference, newRoot(&app{}))
}

func TestCommands_Verbs(t *testing.T) {
	assert.Greater(t, check.CheckVerbs(t, "../../../docs/reference/commands.md", newRoot(&app{})), 30)
}
