package cmdutil

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// logEvery is the interval of lines about a slow call if there is no terminal.
const logEvery = 10 * time.Second

// slowness informs people that a call takes its time: with a line that changes and disappears on a
// terminal, and with a line at intervals elsewhere.
type slowness struct {
	Streams
	peer string

	mu   sync.Mutex
	said time.Duration
}

func newSlowness(s Streams, peer string) *slowness { return &slowness{Streams: s, peer: peer} }

func (s *slowness) report(c client.Slow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("waiting for %s: %s, %s", s.peer, c.Call, c.Took.Round(time.Second))
	if c.Last != nil {
		text += "; the last try: " + cli.Printable(c.Last.Error())
	}
	switch {
	case c.Answered && s.Terminal:
		cli.EndProgress(s.Err)
	case c.Answered:
		s.said = 0
	case s.Terminal:
		cli.Progress(s.Err, "%s", cut(text, lineWidth))
	case c.Took-s.said >= logEvery:
		s.said = c.Took
		s.Say("%s", text)
	}
}

// reportSlow prints that the control plane is slow to answer, until answered is called.
func (s Streams) reportSlow(ctx context.Context, call string) (answered func()) {
	slow, begun := newSlowness(s, "the control plane"), time.Now()
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for told := false; ; told = true {
			select {
			case <-tick.C:
				slow.report(client.Slow{Call: call, Took: time.Since(begun)})
			case <-ctx.Done():
				if told {
					slow.report(client.Slow{Call: call, Took: time.Since(begun), Answered: true})
				}
				return
			}
		}
	})
	return func() { cancel(); telling.Wait() }
}

// lineWidth is what every terminal has: a line that wraps cannot be taken back.
const lineWidth = 79

func cut(text string, width int) string {
	if letters := []rune(text); len(letters) > width {
		return string(letters[:width-1]) + "…"
	}
	return text
}
