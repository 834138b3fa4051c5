package runnerapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Error is the one error type of this wire. It travels as a problem detail
// (RFC 9457) and the client rebuilds the same value from it.
type Error = problem.Error

// Code is the stable name of an error. Scripts may switch on it.
type Code = problem.Code

// The error codes of the Runner API.
const (
	CodeBadRequest          = problem.BadRequest
	CodeForbidden           = problem.Forbidden
	CodeNotFound            = problem.NotFound
	CodeConflict            = problem.Conflict
	CodeBusy                = problem.Busy
	CodeTooLarge            = problem.TooLarge
	CodeInvalid             = problem.Invalid
	CodeTooManyRequests     = problem.TooManyRequests
	CodeInternal            = problem.Internal
	CodeUnavailable         = problem.Unavailable
	CodeTimeout             = problem.Timeout
	CodeUnauthorized        = problem.Unauthorized
	CodeNamespaceNotManaged = Code("namespace_not_managed") // 403
	CodeNotSupported        = Code("not_supported")         // 501
	CodeRequestTimeout      = Code("request_timeout")       // 408
)

// NotManaged refuses a command in a namespace that is not the agent's.
func NotManaged(namespace string) *Error {
	fix := fmt.Sprintf("use a namespace that the agent manages, or make it one: pipeops-runner namespace create AGENT %s (PUT /v1/namespaces/%s); "+
		"one that is there already is handed over with --adopt, where the customer's policy allows adopt-namespace", namespace, namespace)
	if namespace == "default" || strings.HasPrefix(namespace, "kube-") { // the agent never manages these
		fix = "use a namespace of your own, such as one that this makes: pipeops-runner namespace create AGENT NAME (PUT /v1/namespaces/NAME)"
	}
	return problem.New(http.StatusForbidden, CodeNamespaceNotManaged, fix, "the agent does not manage namespace %q", namespace).
		WithField("path.namespace")
}

// NotSupported returns the error for a call that the cluster cannot support.
func NotSupported(fix, format string, args ...any) *Error {
	return problem.New(http.StatusNotImplemented, CodeNotSupported, fix, format, args...)
}

// CodeIdempotencyKeyReused refuses another command under a key that is taken.
const CodeIdempotencyKeyReused = Code("idempotency_key_reused") // 409

// CodeChanged refuses a write that was made from an earlier state of what it replaces.
const CodeChanged = Code("changed_meanwhile") // 412

// Unchanged refuses a write that replaces something and was made from another state than that has
// now. The unit says what identifies the state, such as generation. A zero value is made by a write
// from any state, and had by something that is not there.
func Unchanged[T comparable](what, unit string, made, has T) error {
	var none T
	if made == none || made == has {
		return nil
	}
	state := fmt.Sprintf("has %s %v", unit, has)
	if has == none {
		state = "is not there any more"
	}
	return problem.New(http.StatusPreconditionFailed, CodeChanged, "read it again, put your change into what it has now, and send that",
		"%s %s, and the change was made from %s %v", what, state, unit, made).WithField("header.If-Match")
}
