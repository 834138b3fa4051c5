package request

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

type intentKey struct{}

// WithIntent returns a context of a call that the policy was asked about.
func WithIntent(ctx context.Context, i runnerapi.Intent) context.Context {
	return context.WithValue(ctx, intentKey{}, i)
}

// Intent returns what the policy was asked about the call that ctx belongs to.
func Intent(ctx context.Context) (runnerapi.Intent, bool) {
	i, ok := ctx.Value(intentKey{}).(runnerapi.Intent)
	return i, ok
}
