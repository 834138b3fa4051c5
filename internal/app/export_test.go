package app

import (
	"context"

	"github.com/rs/zerolog"
)

// AdoptLoggers is adoptLoggers.
func AdoptLoggers(log zerolog.Logger) { adoptLoggers(log) }

// WithoutRechecks has the Engine look at an App again only when an event tells of it. It is called
// before Run.
func (e *Engine) WithoutRechecks() { e.controller.NoRechecks = true }

// OutOfThePodsNetwork has the Engine reach no pod itself. It is called before Run.
func (e *Engine) OutOfThePodsNetwork() {
	e.collector.DialWith(func(context.Context, string) error { return context.DeadlineExceeded })
}
