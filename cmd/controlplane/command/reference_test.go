package command

import (
	"flag"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

//go:generate go test . -run TestReferenceIsCommitted -update

var update = flag.Bool("update", false, "write docs/reference/controlplane-cli.md anew")

func TestReferenceIsCommitted(t *testing.T) {
	page := clidoc.Page{File: "../../../docs/reference/controlplane-cli.md", Made: "go generate ./cmd/controlplane/command"}
	page.Check(t, newRoot(&app{}), *update)
}
