package chart

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	runner  = "ci"
	version = "dev" // the charts' appVersion
)

// shared is the cluster, with a control plane beside it, that the tests of this
// package share. They put back what they change.
var shared struct {
	sync.Once
	sys *harness.System
	err error
}

// system starts it for the first test that needs it.
func system(t *testing.T) *harness.System {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("clusters need root")
	}
	shared.Do(func() { shared.err = startSystem() })
	require.NoError(t, shared.err)
	return shared.sys
}

func startSystem() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute) // it may have to be built
	defer cancel()
	if shared.sys, err = harness.New(harness.Options{Name: "chart", Out: os.Stderr}); err != nil {
		return err
	}
	s := shared.sys
	if s.Binaries, err = harness.Build(ctx); err != nil {
		return err
	}
	for _, start := range []func(context.Context) error{s.StartKubernetes, s.StartControlPlane} {
		if err := start(ctx); err != nil {
			return err
		}
	}
	if _, err := s.CreateRunner(ctx, runner); err != nil {
		return err
	}
	return loadAgent(ctx, version)
}

// loadAgent makes the agent's image known to the cluster under the name that
// the chart has for it.
func loadAgent(ctx context.Context, version string) error {
	_, err := shared.sys.Cluster.LoadProgram(ctx, cluster.Program{
		Package: "./cmd/agent", Name: "pipeops-agent", Ref: "pipeops/agent:" + version, Version: version,
	})
	return err
}

func stopSystem() error {
	if shared.sys == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return shared.sys.Close(ctx)
}

// shell runs commands as an operator would, with kubectl, helm and the project's
// programs at hand, and wants success.
func shell(t *testing.T, script string) string {
	t.Helper()
	out, err := runShell(t.Context(), script)
	if err != nil {
		t.Fatalf("%s\n%s\n%v\nthe agent's last lines:\n%s", script, out, err, shared.sys.AgentLog(t.Context(), 20))
	}
	return out
}

// runShell is shell for those who can do without success, or come after a test.
func runShell(ctx context.Context, script string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	kubectl := shared.sys.Cluster.KubectlCommand(ctx)
	path, err := os.MkdirTemp(shared.sys.Dir, "shell-")
	if err != nil {
		return "", err
	}
	if err := shared.sys.Binaries.Link(path); err != nil {
		return "", err
	}
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", kubectl.Args[0], kubectl.Args[1])
	if err := os.WriteFile(filepath.Join(path, "kubectl"), []byte(wrapper), 0o700); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir = harness.Root()
	cmd.Env = slices.Concat(kubectl.Env, []string{
		"PATH=" + path + ":" + filepath.Dir(tools["helm"]) + ":" + os.Getenv("PATH"), "PIPEOPS_DATA_DIR=" + shared.sys.DataDir(),
		"HELM_CACHE_HOME=" + path, "HELM_CONFIG_HOME=" + path, "HELM_DATA_HOME=" + path,
	})
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// pipeops runs pipeops-runner and wants success.
func pipeops(t *testing.T, args ...string) string {
	t.Helper()
	out, err := shared.sys.Runner(t.Context(), runner, args...)
	require.NoError(t, err)
	return out
}

// refused runs pipeops-runner and answers what it was refused with.
func refused(t *testing.T, args ...string) string {
	t.Helper()
	_, err := shared.sys.Runner(t.Context(), runner, args...)
	var exit *harness.ExitError
	require.ErrorAs(t, err, &exit)
	return exit.Stderr
}

// eventually waits for what a command line says.
func eventually(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, what, check))
}

// awaitAgent waits until the control plane says that an agent is online, in a
// version if that matters, and answers its line in the list.
func awaitAgent(t *testing.T, name, version string) (line string) {
	t.Helper()
	eventually(t, name+" is online in version "+version, func(ctx context.Context) error {
		out, err := shared.sys.ControlPlane(ctx, "agent", "list")
		if err != nil {
			return err
		}
		for line = range strings.Lines(out) {
			if f := strings.Fields(line); f[0] == name && f[2] == "online" && (version == "" || strings.Contains(line, " "+version+" ")) {
				return nil
			}
		}
		return errors.New(out)
	})
	return line
}
