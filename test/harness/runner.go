package harness

import (
	"context"
	"path/filepath"
)

// CreateRunner creates a Runner's credentials and returns their file.
func (s *System) CreateRunner(ctx context.Context, name string) (string, error) {
	file := s.RunnerCredentials(name)
	_, err := s.ControlPlane(ctx, "runner", "create", name, "-o", file)
	return file, err
}

// Runner runs pipeops-runner as the Runner of that name.
func (s *System) Runner(ctx context.Context, name string, args ...string) (string, error) {
	return run(ctx, []string{"PIPEOPS_RUNNER_CREDENTIALS=" + s.RunnerCredentials(name)}, s.Binaries.Runner, args...)
}

// RunnerCredentials returns the file with a Runner's credentials.
func (s *System) RunnerCredentials(name string) string {
	return filepath.Join(s.Dir, "runner-"+name+".json")
}

// RunnerWithInput is like Runner with a standard input.
func (s *System) RunnerWithInput(ctx context.Context, name, input string, args ...string) (string, error) {
	return runWith(ctx, input, []string{"PIPEOPS_RUNNER_CREDENTIALS=" + s.RunnerCredentials(name)}, s.Binaries.Runner, args...)
}
