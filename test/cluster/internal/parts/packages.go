package parts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// programs are what the cluster runs from the distribution, with the Debian
// package each is in. Looking for the programs and not for the packages lets
// other distributions, and Docker's containerd, do as well.
var programs = map[string]string{
	"containerd":              "containerd",
	"containerd-shim-runc-v2": "containerd",
	"runc":                    "runc",
	"ip":                      "iproute2",
	"nft":                     "nftables",
	"iptables":                "iptables",
	"conntrack":               "conntrack",
	"modprobe":                "kmod",
	"nsenter":                 "util-linux",
}

const cniPackage = "containernetworking-plugins"

var cniDirs = []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"}

// policyFile, when it exits with 101, keeps a package's services from starting.
const policyFile = "/usr/sbin/policy-rc.d"

func (b *builder) packages(ctx context.Context) error {
	b.progress.step, b.progress.total = 1, 8
	if len(missingPackages()) == 0 {
		return nil
	}
	return b.progress.run("system packages", 30*time.Second, func() (err error) {
		unlock, err := filelock.Wait(ctx, filepath.Join(b.dir, "packages.lock"), nil)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unlock()) }()
		missing := missingPackages()
		if len(missing) == 0 {
			return nil
		}
		return install(ctx, missing)
	})
}

func missingPackages() []string {
	var missing []string
	for program, pkg := range programs {
		if _, err := lookPath(program); err != nil && !slices.Contains(missing, pkg) {
			missing = append(missing, pkg)
		}
	}
	if _, err := cniDir(); err != nil {
		missing = append(missing, cniPackage)
	}
	slices.Sort(missing)
	return missing
}

// lookPath also finds what an ordinary user's PATH leaves out.
func lookPath(program string) (string, error) {
	for _, dir := range []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"} {
		path := filepath.Join(dir, program)
		if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed", program)
}

func cniDir() (string, error) {
	for _, dir := range cniDirs {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the CNI plugins are not installed")
}

func install(ctx context.Context, packages []string) (err error) {
	names := strings.Join(packages, " ")
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("install these with the system's package manager, there is no apt-get here: %s", names)
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("only root can install packages: run `apt-get install %s` or this as root", names)
	}
	allow, err := forbidServices()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, allow()) }()
	lock := []string{"-o", "DPkg::Lock::Timeout=300", "-qq"}
	if err := apt(ctx, append(lock, "update")...); err != nil {
		return err
	}
	return apt(ctx, append(append(lock, "install", "-y", "--no-install-recommends"), packages...)...)
}

// forbidServices keeps the packages' services from starting: the cluster runs
// its own. It leaves a policy of the administrator's alone.
func forbidServices() (allow func() error, err error) {
	file, err := os.OpenFile(policyFile, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755) // must be executable
	if errors.Is(err, fs.ErrExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	_, err = file.WriteString("#!/bin/sh\nexit 101\n")
	return func() error { return os.Remove(policyFile) }, errors.Join(err, file.Close())
}

func apt(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, tail(output.String(), 20))
	}
	return nil
}
