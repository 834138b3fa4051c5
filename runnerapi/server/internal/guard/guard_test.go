package guard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

func TestGuard_ZeroValueDenies(t *testing.T) {
	asked := request.WithIntent(t.Context(), runnerapi.Intent{Command: "put-app", Access: runnerapi.Writes, Namespace: "shop"})
	for name, ctx := range map[string]context.Context{"a call that the guard saw": asked, "a call that it did not see": t.Context()} {
		g := &Guard{}
		require.Error(t, g.BringApp(ctx, runnerapi.AppSpec{}), name)
		assert.Empty(t, Seen(ctx, g, []string{"shop"}, func(s string) string { return s }), name)
	}
}
