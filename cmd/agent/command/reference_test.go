package command

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

//go:generate go test . -run TestReferenceIsCommitted -update

var rewrite = flag.Bool("update", false, "write docs/reference/agent-cli.md anew")

func TestReferenceIsCommitted(t *testing.T) {
	page := clidoc.Page{File: "../../../docs/reference/agent-cli.md", Made: "go generate ./cmd/agent/command"}
	page.Check(t, newRoot(), *rewrite)
}

// TestEachVerbMeansOneAct: a command of a noun has a verb of the table.
func TestEachVerbMeansOneAct(t *testing.T) {
	assert.Greater(t, clidoc.CheckVerbs(t, "../../../docs/reference/commands.md", newRoot()), 10)
}
