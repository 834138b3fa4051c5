package pods

import (
	"os"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// terminalSizes returns the terminal's size now: Windows has no signal for its changes.
func terminalSizes(of *os.File) (sizes <-chan runnerapi.TerminalSize, stop func()) {
	to := make(chan runnerapi.TerminalSize, 1)
	offerTerminalSize(of, to)
	return to, func() {}
}
