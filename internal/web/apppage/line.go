package apppage

import (
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// LineOf returns a line of an App's log as the kit has it.
func LineOf(l runnerapi.LogLine) web.Line { return web.Line{Time: l.Time, Pod: l.Pod, Line: l.Line} }
