// Package cgroup reads the memory limits of this process' control groups, of version 1 and 2 of the
// kernel's interface.
package cgroup

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is the memory of a control group with a limit, in bytes.
type Memory struct {
	Limit int64
	// Used leaves out what the kernel can drop: pages of files, such as those of a program.
	Used int64
	// Kills is how many processes the kernel has killed because there was no memory left.
	Kills int64
}

// Self is this process.
const Self = "self"

// version is how one version of the interface names its files and its numbers.
type version struct {
	limit, used string
	dropped     []string // of memory.stat
	events      string   // with the number of processes that were killed
}

var (
	version1 = version{"memory.limit_in_bytes", "memory.usage_in_bytes", []string{"total_inactive_file", "total_active_file"}, "memory.oom_control"}
	version2 = version{"memory.max", "memory.current", []string{"inactive_file", "active_file"}, "memory.events"}
)

// unlimited is less than what version 1 reports for a group without a limit, and more than any
// machine has.
const unlimited = 1 << 60

// Limits returns the group of a process, by its ID, and each above it, as far as they have a limit.
// root is the root of the file system: "/", or a test's folder.
func Limits(root, process string) []Memory {
	var all []Memory
	for _, p := range places(root, process) {
		for dir := p.dir; ; dir = path.Dir(dir) {
			if m, limited := p.read(filepath.Join(root, dir)); limited {
				all = append(all, m)
			}
			if dir == p.mount || dir == "/" {
				break
			}
		}
	}
	return all
}

// Tightest returns the group that has the least memory free; false if none has a limit.
func Tightest(root, process string) (tightest Memory, limited bool) {
	for _, m := range Limits(root, process) {
		if !limited || m.Limit-m.Used < tightest.Limit-tightest.Used {
			tightest, limited = m, true
		}
	}
	return tightest, limited
}

func (v version) read(dir string) (m Memory, limited bool) {
	limit, ok := number(filepath.Join(dir, v.limit))
	if !ok || limit >= unlimited {
		return m, false
	}
	used, ok := number(filepath.Join(dir, v.used))
	if !ok {
		return m, false
	}
	stat := numbers(filepath.Join(dir, "memory.stat"))
	for _, name := range v.dropped {
		used -= stat[name]
	}
	return Memory{limit, max(used, 0), numbers(filepath.Join(dir, v.events))["oom_kill"]}, true
}

// numbers reads a file of names and numbers; none if there is no such file.
func numbers(file string) map[string]int64 {
	all := map[string]int64{}
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			all[name] = n
		}
	}
	return all
}

func number(file string) (int64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil // "max" is not a number: no limit
}
