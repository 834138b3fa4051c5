package request

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestWithCaller_CountsForRunner(t *testing.T) {
	caller := runnerapi.Caller{Runner: "deployer", RequestID: "1"}
	ctx := WithCaller(t.Context(), caller)
	assert.Equal(t, caller, Caller(ctx))
	assert.Equal(t, limit.Owner{Namespace: "shop", Runner: "deployer"}, limit.OwnerOf(ctx, "shop"))
}
