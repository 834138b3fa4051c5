package diagnose

import (
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// memory finds a container that was killed for its memory.
func memory(c container, ev *Evidence) Finding {
	end := c.lastEnd()
	if end == nil || end.Reason != "OOMKilled" {
		return Finding{}
	}
	left := c.settlesIn(end, ev)
	if c.runs() && left <= 0 {
		return Finding{}
	}
	message, fix := c.what()+" was killed because the node ran out of memory",
		"set resources.requests.memory to what the App needs"
	if limit := c.spec.Resources.Limits.Memory(); !limit.IsZero() {
		message = fmt.Sprintf("%s was killed because it used more memory than its limit of %s", c.what(), limit)
		fix = "raise resources.limits.memory, or make the App use less"
	}
	return Finding{Diagnosis: c.ended(runnerapi.CauseOutOfMemory, message, fix, end), Recheck: left}
}

// smothered returns the diagnosis of a container whose limit is too low to start anything in it.
func (c container) smothered() *runnerapi.Diagnosis {
	return c.diagnosis(runnerapi.CauseOutOfMemory,
		fmt.Sprintf("%s was killed for its memory before its process began: its limit is %s", c.what(), c.spec.Resources.Limits.Memory()),
		"raise resources.limits.memory: the runtime itself needs some 10Mi to start a process")
}
