// Package cgroup reads the limits of this process' control groups (version 2).
package cgroup

import (
	"math"
	"os"
	"path"
	"strconv"
	"strings"
)

// Root is where the groups are, in a container too.
const Root = "/sys/fs/cgroup"

// Memory calls yield with limit and use in bytes, for this process' group and each above it that
// has a limit.
func Memory(root string, yield func(limit, used uint64)) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(own)) {
		dir, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		for ; ; dir = path.Dir(dir) {
			limit, limited := number(path.Join(root, dir, "memory.max"))
			used, known := number(path.Join(root, dir, "memory.current"))
			if limited && known {
				yield(limit, used)
			}
			if dir == "/" || dir == "." {
				break
			}
		}
	}
}

// MemoryLimit returns the least limit in bytes; math.MaxInt64 for none.
func MemoryLimit(root string) int64 {
	least := uint64(math.MaxInt64)
	Memory(root, func(limit, _ uint64) { least = min(least, limit) })
	return int64(least)
}

func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil // "max" is not a number: no limit
}
