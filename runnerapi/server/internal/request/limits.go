package request

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// OperationIDHeader names the operation that a write is.
const OperationIDHeader = "Operation-Id"

// JournalLimit bounds one write to the journal.
const JournalLimit = 10 * time.Second

// busyRetry is the delay after which a call beyond its Runner's share may be retried.
const busyRetry = time.Second

// Busy returns the error for a call beyond its Runner's share.
func Busy(detail string) *runnerapi.Error {
	return problem.Errorf(problem.TooManyRequests, "wait as long as Retry-After says, and send fewer calls at a time", "%s", detail).WithRetryAfter(busyRetry)
}

// Limited bounds the part of a call that does not wait.
func Limited[T any](ctx context.Context, d time.Duration, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}
