package controlapi

import (
	"errors"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Passing reports whether the control plane may answer differently later without a change by the
// operator.
func Passing(err error) bool {
	var e *Error
	return !errors.As(err, &e) || e.Passing()
}

// Refused reports whether the control plane no longer knows the agent that called, or no longer
// admits it.
func Refused(err error) bool { return Forgotten(err) || Cloned(err) || problem.Is(err, CodeRevoked) }

// Forgotten reports whether the control plane no longer knows the agent that called: it was
// removed, or the control plane was reinstalled.
func Forgotten(err error) bool { return problem.Is(err, CodeAgentUnknown) }

// Cloned reports whether the control plane knows the caller's identity as that of another cluster's
// agent.
func Cloned(err error) bool { return problem.Is(err, CodeIdentityCloned) }
