package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/archive"
)

// show tells on a terminal how much is copied, from the first second on, until end is called.
func (c *copyCommand) show() (end func()) {
	if !c.terminal {
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
					_, _ = fmt.Fprint(c.err, "\r\x1b[K")
				}
				return
			case <-ticker.C:
				took := time.Since(start)
				rate := int64(float64(c.tally.Bytes()) / took.Seconds())
				_, _ = fmt.Fprintf(c.err, "\r\x1b[K%s (%s, %s/s)", &c.tally, took.Round(time.Second), archive.Size(rate))
			}
		}
	})
	return func() {
		close(done)
		showing.Wait()
	}
}
