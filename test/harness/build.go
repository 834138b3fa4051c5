package harness

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/image"
)

// Root is the top folder of the repository: the nearest one above the current
// directory that has the Makefile.
func Root() string {
	dir, err := filepath.Abs(".")
	if err != nil {
		return "."
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "Makefile")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			return dir
		}
	}
}

// Binaries are the paths of the three programs.
type Binaries struct{ Agent, ControlPlane, Runner string }

// Build compiles the three programs as a release would, into bin/.
func Build(ctx context.Context) (Binaries, error) {
	bin := filepath.Join(Root(), "bin")
	b := Binaries{
		Agent:        filepath.Join(bin, "pipeops-agent"),
		ControlPlane: filepath.Join(bin, "pipeops-controlplane"),
		Runner:       filepath.Join(bin, "pipeops-runner"),
	}
	for pkg, out := range map[string]string{"agent": b.Agent, "controlplane": b.ControlPlane, "runner": b.Runner} {
		build := image.GoBuild{Dir: Root(), Package: "./cmd/" + pkg, Output: out, LDFlags: "-X main.version=" + version(ctx)}
		if err := build.Run(ctx); err != nil {
			return Binaries{}, err
		}
	}
	return b, nil
}

// version is what git calls this tree.
func version(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--tags", "--always", "--dirty")
	cmd.Dir = Root()
	out, err := cmd.Output()
	if err != nil {
		return "dev"
	}
	return strings.TrimSpace(string(out))
}
