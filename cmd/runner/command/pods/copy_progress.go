package pods

import (
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/archive"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// show shows the progress of the copy on a terminal, from the first second on, until end is called.
func (c *copyCommand) show() (end func()) {
	if !c.Terminal {
		return func() {}
	}
	done, start := make(chan struct{}), time.Now()
	var showing sync.WaitGroup
	showing.Go(func() {
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for shown := false; ; shown = true {
			select {
			case <-done:
				if shown {
					cli.EndProgress(c.Err)
				}
				return
			case <-ticker.C:
				took := time.Since(start)
				rate := int64(float64(c.tally.Bytes()) / took.Seconds())
				cli.Progress(c.Err, "%s (%s, %s/s)", &c.tally, took.Round(time.Second), archive.Size(rate))
			}
		}
	})
	return func() {
		close(done)
		showing.Wait()
	}
}
