package render

import (
	"runtime/debug"
	"runtime/metrics"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// inAll is what a child takes at most, in bytes: its heap, and what the runtime and the program
// have beside it.
const inAll = Memory + 20<<20

// makeRoom lowers this process' own limit (GOMEMLIMIT) while a child runs, so that both fit into
// the container's limit: the kernel could take the agent before the child. It refuses if the agent
// itself needs what the child would get. The caller calls restore when the child has ended.
func makeRoom(limit int64) (restore func(), err error) {
	own, before := limit-inAll, debug.SetMemoryLimit(-1)
	if own >= before {
		return func() {}, nil
	}
	restore = func() { debug.SetMemoryLimit(before) }
	debug.SetMemoryLimit(max(own, 0))
	if used() > own {
		debug.FreeOSMemory()
	}
	if uses := used(); uses > own {
		restore()
		return nil, problem.Errorf(problem.Unavailable, "send it again when the agent is less busy, or give it more memory (resources.limits.memory of its pod)",
			"rendering takes up to %d MiB of memory, and the agent, which may have %d MiB, uses %d MiB", inAll>>20, limit>>20, uses>>20)
	}
	return restore, nil
}

// used returns the bytes that GOMEMLIMIT is about: https://pkg.go.dev/runtime/debug#SetMemoryLimit
func used() int64 {
	s := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(s)
	return int64(s[0].Value.Uint64() - s[1].Value.Uint64()) //nolint:gosec // far below
}
