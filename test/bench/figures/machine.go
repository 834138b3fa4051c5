package figures

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine describes the machine of the measurements. Unknown fields are empty.
type Machine struct {
	CPUs       int     `json:"cpus"`
	MemoryGiB  float64 `json:"memoryGiB,omitempty"`
	OS         string  `json:"os,omitempty"`
	Go         string  `json:"go,omitempty"`
	Kubernetes string  `json:"kubernetes,omitempty"`
}

func thisMachine() (Machine, error) {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return Machine{}, fmt.Errorf("read the machine's memory: %w", err)
	}
	return Machine{
		CPUs: runtime.NumCPU(), MemoryGiB: float64(info.Totalram*uint64(info.Unit)>>20) / 1024,
		OS: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
	}, nil
}

func (m Machine) String() string {
	said := []string{fmt.Sprintf("%d CPUs", m.CPUs), "memory not noted", "system not noted", "Go not noted"}
	if m.MemoryGiB > 0 {
		said[1] = fmt.Sprintf("%.1f GiB", m.MemoryGiB)
	}
	if m.OS != "" {
		said[2] = m.OS
	}
	if m.Go != "" {
		said[3] = m.Go
	}
	if m.Kubernetes != "" {
		said = append(said, "Kubernetes "+m.Kubernetes)
	}
	return strings.Join(said, ", ")
}

// thisCommit returns the working tree's commit, and whether the tree has other changes than to
// docs, which one part writes while the next one is measured.
func thisCommit(ctx context.Context) (commit string, changed bool, err error) {
	if commit, err = git(ctx, "rev-parse", "--short=12", "HEAD"); err != nil {
		return "", false, err
	}
	status, err := git(ctx, "status", "--porcelain", "--", ":(top)", ":(top,exclude)docs")
	return commit, status != "", err
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}
