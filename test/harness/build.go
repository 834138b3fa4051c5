package harness

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// Root returns the top folder of the repository.
func Root() string { return inputs.Root() }

// Binaries are the paths of the three programs.
type Binaries struct{ Agent, ControlPlane, Runner string }

// Build compiles the three programs as a release would, unless their sources are as they were.
func Build(ctx context.Context) (Binaries, error) { return build(ctx, programs.Runner) }

// BuildChecked is like Build with a pipeops-runner that ends with exit code 97 if an answer of an
// agent breaks the Runner API's document.
func BuildChecked(ctx context.Context) (Binaries, error) {
	runner := programs.Runner
	runner.Tags = "contract"
	return build(ctx, runner)
}

func build(ctx context.Context, runner programs.Program) (b Binaries, err error) {
	for program, path := range map[programs.Program]*string{
		programs.Agent: &b.Agent, programs.ControlPlane: &b.ControlPlane, runner: &b.Runner,
	} {
		if *path, err = program.Build(ctx); err != nil {
			return Binaries{}, err
		}
	}
	return b, nil
}

// Link puts the three programs into a folder, for a PATH.
func (b Binaries) Link(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, program := range []string{b.Agent, b.ControlPlane, b.Runner} {
		link := filepath.Join(dir, filepath.Base(program))
		if err := os.Remove(link); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.Symlink(program, link); err != nil {
			return err
		}
	}
	return nil
}
