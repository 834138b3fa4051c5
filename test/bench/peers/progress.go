package main

import (
	"fmt"
	"io"
	"time"
)

// progress reports the current step.
type progress struct {
	out   io.Writer
	start time.Time
	steps int
}

func (p *progress) say(format string, args ...any) { fmt.Fprintf(p.out, "   "+format+"\n", args...) }

func (p *progress) step(title string, do func() error) error {
	p.steps++
	fmt.Fprintf(p.out, "== %d. %s  (at %s)\n", p.steps, title, time.Since(p.start).Round(time.Second))
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	return nil
}
