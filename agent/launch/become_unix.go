//go:build unix

package launch

import (
	"fmt"
	"os"
	"syscall"
)

// Supported reports whether a process of this system can go on as another program.
const Supported = true

func become(path string, env []string) error {
	err := syscall.Exec(path, os.Args, env) //nolint:gosec // verified by its signature, or this very program
	return fmt.Errorf("start %s: %w", path, err)
}
