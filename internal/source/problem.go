package source

import (
	"context"
	"errors"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// asProblem returns why a repository could not be got or applied, as an answer.
func asProblem(err error) error {
	if g, ok := errors.AsType[*git.Error](err); ok {
		return g.Problem()
	}
	return kubeproblem.From(err, "trying the source")
}

// listed returns all that was refused, a line for each.
func listed(fields []problem.FieldError) string {
	lines := make([]string, 0, len(fields))
	for _, f := range fields {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

// asSourceError is the same for the status. Text that may be confidential stays in the agent's log.
func asSourceError(err error) *runnerapi.SourceError {
	p := &problem.Error{}
	switch {
	case errors.As(asProblem(err), &p):
		message := p.Placed()
		if len(p.Fields) > 1 {
			message = listed(p.Fields)
		}
		return &runnerapi.SourceError{Code: string(p.Code), Message: message, Fix: p.Fix}
	case errors.Is(err, context.DeadlineExceeded):
		return &runnerapi.SourceError{Code: string(git.Timeout), Message: "it took more than " + patience.String(), Fix: "it is tried again"}
	}
	return &runnerapi.SourceError{Code: string(problem.Internal), Message: "the agent failed", Fix: "look at the agent's log"}
}

// date writes into an error since when there is that error, and reports whether it is another one
// than before.
func date(e, before *runnerapi.SourceError, now string) (isNew bool) {
	e.Since = now
	if before == nil || before.Code != e.Code || before.Message != e.Message || before.Commit != e.Commit {
		return true
	}
	e.Since = before.Since
	return false
}
