//go:build unix

package pods

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// terminalSizes returns the terminal's size now, and whenever it changes until stop.
func terminalSizes(of *os.File) (sizes <-chan runnerapi.TerminalSize, stop func()) {
	to := make(chan runnerapi.TerminalSize, 1)
	changed, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(changed, syscall.SIGWINCH)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			offerTerminalSize(of, to)
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	})
	return to, func() {
		signal.Stop(changed)
		close(done)
		watching.Wait()
	}
}
