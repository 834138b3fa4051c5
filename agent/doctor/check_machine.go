package doctor

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/render/cage"
)

// What the agent itself needs: its program and state are small, its memory is
// bounded by its unit or pod.
const (
	mebibyte      = 1 << 20
	diskNeeded    = 20 * mebibyte
	diskScarce    = 500 * mebibyte
	memoryNeeded  = 64 * mebibyte
	memoryScarce  = 160 * mebibyte
	fixDisk       = "free space on that disk"
	fixMemory     = "stop something else, add memory, or raise the limit"
	fixCgo        = "use a program that is built with CGO_ENABLED=0, as those of a release and of `make build` are"
	fixCage       = "use a kernel from 5.13 on with lsm=landlock, and a seccomp profile that allows landlock_create_ruleset, landlock_restrict_self and seccomp"
	unknownOnThis = "not known on this system"
)

// machine checks what this machine has for the agent.
type machine struct{ stateDir string }

// disk looks at where the agent keeps its state, or at the root.
func (m machine) disk(context.Context) []Finding {
	dir := "/"
	if _, err := os.Stat(m.stateDir); m.stateDir != "" && err == nil {
		dir = m.stateDir
	}
	free, known, err := freeSpace(dir)
	switch {
	case err != nil:
		return failed(fmt.Sprintf("%s: %v", dir, err), "make sure that the directory can be read")
	case !known:
		return skipped(unknownOnThis)
	}
	return enough(fmt.Sprintf("%d MiB are free at %s", free/mebibyte, dir), free, diskNeeded, diskScarce, fixDisk)
}

// memory looks at what the machine and the agent's own limit leave.
func (m machine) memory(context.Context) []Finding {
	free, known, err := freeMemory()
	switch {
	case err != nil:
		return failed(err.Error(), "make sure that /proc is mounted")
	case !known:
		return skipped(unknownOnThis)
	}
	return enough(fmt.Sprintf("%d MiB are available", free/mebibyte), free, memoryNeeded, memoryScarce, fixMemory)
}

// rendering looks at what confines the process that renders charts.
func (m machine) rendering(context.Context) []Finding {
	if missing := cage.Missing(); len(missing) > 0 {
		fix := fixCage
		if cage.HasCgo() {
			fix = fixCgo
		}
		return warning("charts are rendered without "+strings.Join(missing, " and "), fix)
	}
	return ok("charts are rendered behind Landlock and seccomp")
}

func enough(detail string, have, needed, scarce uint64, fix string) []Finding {
	switch {
	case have < needed:
		return failed(detail, fix)
	case have < scarce:
		return warning(detail, fix)
	}
	return ok(detail)
}
