//go:build unix

package launch

import (
	"fmt"
	"os"
	"syscall"
)

// Supported reports whether a process of this system can go on as another program.
const Supported = true

// execute replaces the process by a program, and returns only on an error.
func execute(path string, env []string) error {
	err := syscall.Exec(path, os.Args, env) //nolint:gosec // verified by its signature, or this very program
	return fmt.Errorf("start %s: %w", path, err)
}
