package git

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Reason is the stable name of a failure.
type Reason string

// The reasons.
const (
	NotFound      Reason = "repository_not_found"
	WantsPassword Reason = "credentials_needed"
	Denied        Reason = "credentials_refused"
	HostKey       Reason = "host_key_unknown"
	NotTrusted    Reason = "certificate_not_trusted"
	RefMissing    Reason = "ref_not_found"
	PathMissing   Reason = "path_not_found"
	TooLarge      Reason = "too_large"
	Timeout       Reason = "timeout"
	Unreachable   Reason = "unreachable"
	Moved         Reason = "moved"
	NotGit        Reason = "not_a_repository"
	Forbidden     Reason = "address_forbidden"
	HostForbidden Reason = "host_forbidden"
	Credentials   Reason = "credentials_invalid"
)

// Error is why there are no files, with a fix. It contains no secret.
type Error struct {
	Reason       Reason
	Message, Fix string
}

func (e *Error) Error() string { return e.Message + " (fix: " + e.Fix + ")" }

// Problem returns the error as an answer to a call.
func (e *Error) Problem() *problem.Error {
	return problem.New(http.StatusUnprocessableEntity, problem.Code(e.Reason), e.Fix, "%s", e.Message)
}

// NewError returns an Error.
func NewError(reason Reason, fix, format string, args ...any) *Error {
	return failed(reason, fix, format, args...)
}

func failed(reason Reason, fix, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: fmt.Sprintf(format, args...), Fix: fix}
}

// errTooMuch is the end of a stream that is longer than its limit.
var errTooMuch = errors.New("more than the limit")

// forbidden returns what the guard's refusal of a host means.
func forbidden(refused *egress.RefusedError, host string) *Error {
	reason := Forbidden
	if refused.ByPolicy() {
		reason = HostForbidden
	}
	return failed(reason, refused.Fix(), "%s cannot be reached: %v", host, refused)
}

// network returns what an error of a connection means.
func network(err error, host string) error {
	var known *Error
	var dns *net.DNSError
	var closed *egress.RefusedError
	switch {
	case errors.As(err, &closed):
		return forbidden(closed, host)
	case errors.As(err, &known):
		return known
	case errors.Is(err, errTooMuch):
		return failed(TooLarge, "follow a smaller repository: one for what is deployed, without builds and media", "%s sends more than the agent takes", host)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return failed(Timeout, "try again; if it stays, look whether the server answers from the agent's network", "%s did not answer in time", host)
	case errors.Is(err, context.Canceled):
		return err
	case errors.As(err, &dns):
		return failed(Unreachable, "correct the host in url, or the DNS of the agent's network", "the host %s has no address", dns.Name)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return failed(Unreachable, "see that the agent's network lets it out to there, and that the server runs", "%s cannot be reached: %v", host, op.Err)
	}
	return failed(Unreachable, "try again; if it stays, see what is between the agent and the server", "the connection to %s broke: %v", host, err)
}
