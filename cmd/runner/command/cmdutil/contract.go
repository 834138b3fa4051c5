//go:build contract

package cmdutil

import (
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/test/contract/checked"
)

// exitContract is the exit code of an answer that breaks the API's document.
const exitContract = 97

// The end-to-end tests build the program with this tag: each of its calls that gets a wrong answer
// ends it.
func init() {
	around = checked.Reporting(func(err error) {
		cli.Say(os.Stderr, "contract: %s", cli.Printable(err.Error()))
		os.Exit(exitContract)
	})
}
