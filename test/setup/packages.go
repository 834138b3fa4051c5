package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// packageOf names Debian's packages that are not called like their program.
var packageOf = map[string]string{"systemd-nspawn": "systemd-container", "node": "nodejs"}

// fileOf names a file of each package that has no program.
var fileOf = map[string]string{"python3-pika": "/usr/lib/python3/dist-packages/pika/__init__.py"}

// packages installs the programs that are missing from Debian's packages.
func packages(programs ...string) func(context.Context, io.Writer) error {
	return func(ctx context.Context, out io.Writer) error {
		var missing []string
		for _, program := range programs {
			if !isInstalled(program) {
				missing = append(missing, cmp.Or(packageOf[program], program))
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

// isInstalled reports whether a program is in PATH, or the file of a package without one is there.
func isInstalled(program string) bool {
	if file, ok := fileOf[program]; ok {
		_, err := os.Stat(file)
		return err == nil
	}
	_, err := exec.LookPath(program)
	return err == nil
}
