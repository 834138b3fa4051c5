package app

import (
	"github.com/rs/zerolog"
)

// AdoptLoggers is adoptLoggers.
func AdoptLoggers(log zerolog.Logger) { adoptLoggers(log) }

// WithoutRechecks has the Engine look at an App again only when an event tells of it. It is called
// before Run.
func (e *Engine) WithoutRechecks() { e.controller.NoRechecks = true }
