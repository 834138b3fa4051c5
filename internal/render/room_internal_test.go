package render

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// TestMakeRoom_BudgetsAddUp: what the agent may have while a child runs, and the child, are the
// container's limit.
func TestMakeRoom_BudgetsAddUp(t *testing.T) {
	const soft = 1 << 30
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(soft))
	for limit, want := range map[int64]int64{math.MaxInt64: soft, soft + inAll: soft, soft: soft - inAll} {
		restore, err := makeRoom(limit)
		require.NoError(t, err)
		assert.Equal(t, want, debug.SetMemoryLimit(-1))
		restore()
		assert.EqualValues(t, soft, debug.SetMemoryLimit(-1))
	}
	needs := make([]byte, 32<<20)
	for i := range needs {
		needs[i] = 1
	}
	_, err := makeRoom(inAll + 16<<20)
	runtime.KeepAlive(needs)
	refused := problemtest.Of(t, err)
	assert.Equal(t, problem.Unavailable, refused.Code)
	assert.Contains(t, refused.Detail, "rendering takes up to 84 MiB of memory, and the agent, which may have 100 MiB, uses ")
	assert.EqualValues(t, soft, debug.SetMemoryLimit(-1))
}
