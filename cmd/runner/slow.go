package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// logEvery spaces what is said of a slow call where there is no terminal.
const logEvery = 10 * time.Second

// slowness tells people that a call takes its time: a line that changes and goes on a
// terminal, a line now and then elsewhere.
type slowness struct {
	*app
	agent string

	mu   sync.Mutex
	said time.Duration
}

func newSlowness(a *app, agent string) *slowness { return &slowness{app: a, agent: agent} }

func (s *slowness) tell(c runnerapi.Slow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("waiting for agent %s: %s, %s", s.agent, c.Call, c.Took.Round(time.Second))
	if c.Last != nil {
		text += "; the last try: " + cli.Printable(c.Last.Error())
	}
	switch {
	case c.Answered && s.terminal:
		_, _ = fmt.Fprint(s.err, "\r\x1b[K")
	case c.Answered:
		s.said = 0
	case s.terminal:
		_, _ = fmt.Fprintf(s.err, "\r\x1b[K%s", cut(text, lineWidth))
	case c.Took-s.said >= logEvery:
		s.said = c.Took
		s.say("%s", text)
	}
}

// lineWidth is what every terminal has: a line that wraps cannot be taken back.
const lineWidth = 79

func cut(text string, width int) string {
	if letters := []rune(text); len(letters) > width {
		return string(letters[:width-1]) + "…"
	}
	return text
}
