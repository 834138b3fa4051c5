package request

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

type callerKey struct{}

// Caller returns the sender of the call that ctx belongs to.
func Caller(ctx context.Context) runnerapi.Caller {
	c, _ := ctx.Value(callerKey{}).(runnerapi.Caller)
	return c
}

// WithCaller returns a context of a call of this sender, to whose shares (internal/limit) the work
// counts.
func WithCaller(ctx context.Context, c runnerapi.Caller) context.Context {
	return context.WithValue(limit.WithRunner(ctx, c.Runner), callerKey{}, c)
}
