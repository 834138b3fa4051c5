package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// packages installs programs from Debian's packages of the same names, those
// that are missing.
func packages(names ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		var missing []string
		for _, name := range names {
			if _, err := exec.LookPath(name); err != nil {
				missing = append(missing, name)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		list := strings.Join(missing, " ")
		fmt.Fprintln(out, "installing", list)
		cmd := exec.CommandContext(ctx, "sh", "-c", "apt-get -qq -o DPkg::Lock::Timeout=300 update && apt-get -qq -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "+list)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if said, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("install %s, as root on Debian, or by hand: %w\n%s", list, err, said)
		}
		return nil
	}
}
