//go:build contract

package main

import (
	"fmt"
	"os"

	"github.com/pipeops/pipeops-vm-agent/test/contract/checked"
)

// exitContract is the exit code of an answer that breaks the API's document.
const exitContract = 97

// The end-to-end tests build the program with this tag: each of its calls that gets a wrong answer
// ends it.
func init() {
	around = checked.Reporting(func(err error) {
		_, _ = fmt.Fprintln(os.Stderr, "contract:", err) // the exit code tells as well
		os.Exit(exitContract)
	})
}
