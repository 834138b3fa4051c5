package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// ShellDir creates a directory in which the documentation's examples run as they are written. It
// contains the files that they read, a Runner's credentials under the names that they use, and
// programs with the names that they call. ShellDir returns the environment for it.
func (s *System) ShellDir(dir, runner string) (env []string, err error) {
	if err := ExampleFiles(dir); err != nil {
		return nil, err
	}
	credentials, err := os.ReadFile(s.RunnerCredentials(runner))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"runner.json", "me.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), credentials, 0o600); err != nil {
			return nil, err
		}
	}
	bin := filepath.Join(dir, "bin")
	if err := s.Binaries.Link(bin); err != nil {
		return nil, err
	}
	kubectl := s.Cluster.KubectlCommand(context.Background())
	script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", strings.Join(kubectl.Args, " "))
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(script), 0o755); err != nil {
		return nil, err
	}
	return append(kubectl.Env, "HOME="+dir, "PATH="+bin+":"+os.Getenv("PATH"),
		"PIPEOPS_RUNNER_CREDENTIALS="+filepath.Join(dir, "runner.json")), nil
}
