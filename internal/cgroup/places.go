package cgroup

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// place is where a process' group is in the file system.
type place struct {
	version
	mount string // of the hierarchy
	dir   string // of the group, which is the mount's or below it
}

// places returns where the memory of a process' groups is accounted: in version 1's hierarchy,
// in version 2's, or in both on a machine that has both, of which one has no such files.
func places(root, process string) (all []place) {
	groups, err := os.ReadFile(filepath.Join(root, "proc", process, "cgroup"))
	if err != nil {
		return nil
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(groups)) { // cgroups(7): ID:CONTROLLERS:PATH
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) != 3 {
			continue
		}
		v, isMemory := version1, slices.Contains(strings.Split(fields[1], ","), "memory")
		if fields[0] == "0" && fields[1] == "" {
			v, isMemory = version2, true
		}
		if !isMemory {
			continue
		}
		for mount := range strings.Lines(string(mounts)) {
			if at, from, ok := v.mounted(mount); ok {
				all = append(all, place{v, at, below(at, from, fields[2])})
				break
			}
		}
	}
	return all
}

// mounted returns where a line of mountinfo (proc(5)) mounts the hierarchy, and which part of it.
func (v version) mounted(line string) (at, from string, ok bool) {
	mount, source, _ := strings.Cut(line, " - ")
	fields, of := strings.Fields(mount), strings.Fields(source)
	if len(fields) < 5 || len(of) < 3 {
		return "", "", false
	}
	if v.limit == version2.limit {
		ok = of[0] == "cgroup2"
	} else {
		ok = of[0] == "cgroup" && slices.Contains(strings.Split(of[2], ","), "memory")
	}
	return fields[4], fields[3], ok
}

// below returns where a group is that has this path in its hierarchy, of which a part is mounted. A
// container sees only its own part, at the mount, while the path may be the machine's.
func below(at, from, group string) string {
	relative, err := filepath.Rel(from, group)
	if err != nil || relative == ".." || strings.HasPrefix(relative, "../") {
		return at
	}
	return path.Join(at, relative)
}
