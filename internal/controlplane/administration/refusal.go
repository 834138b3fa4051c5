package administration

import (
	"errors"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// missing returns the error for a name that is not there.
func missing(fix, format string, args ...any) error {
	return problem.Errorf(problem.NotFound, fix, format, args...)
}

// conflict returns the error for a change that does not fit what is there.
func conflict(fix, format string, args ...any) error {
	return problem.Errorf(problem.Conflict, fix, format, args...)
}

// invalid returns the error for a value that makes no sense.
func invalid(fix, format string, args ...any) error {
	return problem.Errorf(problem.Invalid, fix, format, args...)
}

// asInvalid makes a problem of what another package has found wrong in a value. Its text says what
// to do.
func asInvalid(err error) error {
	var known *problem.Error
	if err == nil || errors.As(err, &known) {
		return err
	}
	return invalid("", "%s", err.Error())
}
