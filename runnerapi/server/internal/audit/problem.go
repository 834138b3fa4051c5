package audit

import (
	"errors"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// problemIn returns what a problem's answer contains for the audit log.
func problemIn(note *Note, answer func() *runnerapi.Error) *runnerapi.Error {
	known := &runnerapi.Error{}
	if note != nil && errors.As(note.problem, &known) {
		return known
	}
	return answer()
}
