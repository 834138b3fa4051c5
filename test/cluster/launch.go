package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
)

// The hidden commands of the cluster tool by which it starts process 1.
const (
	LaunchCommand = "__launch"
	InitCommand   = "__init"
)

const (
	pollInterval = 20 * time.Millisecond
	logLines     = 15
	initLog      = "init.log"
)

// launch starts process 1 through a short-lived process in between. That enters
// the control group, which must not happen to the caller, and leaves process 1
// without a parent that would have to wait for it.
func (c *Cluster) launch(ctx context.Context, tool string, reserved *reservation) error {
	cmd := exec.CommandContext(ctx, tool, LaunchCommand, c.dir)
	cmd.ExtraFiles = []*os.File{reserved.file}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("start the cluster's process 1: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(output)))
	if err != nil {
		return fmt.Errorf("start the cluster's process 1: %w", err)
	}
	if c.state.Init, err = processOf(pid); err != nil {
		return c.explain(err)
	}
	return c.state.save(c.dir)
}

// Launch returns the process in between; it returns the ID of process 1.
func Launch(dir string) (pid int, err error) {
	s, err := loadState(dir)
	if err != nil {
		return 0, err
	}
	if err := s.Cgroup.Enter(); err != nil {
		return 0, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	log, err := os.OpenFile(filepath.Join(dir, initLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	cmd := exec.Command(self, InitCommand, dir) //nolint:noctx // it must outlive us
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{os.NewFile(3, "reservation")}
	cmd.Dir = "/"
	cmd.SysProcAttr = &unix.SysProcAttr{
		Setsid: true,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS |
			unix.CLONE_NEWIPC | unix.CLONE_NEWCGROUP,
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	return cmd.Process.Pid, nil
}

// Init is process 1 itself.
func Init(ctx context.Context, dir string) error { return node.Init(ctx, dir) }

// waitEvent waits until process 1 reports an event, or fails if process 1 has ended.
func (c *Cluster) waitEvent(ctx context.Context, kind node.EventKind, name string) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(context.Context) (bool, error) {
		running := c.Running() // asked before, so that its last words are read
		events, err := node.Events(c.dir)
		if slices.ContainsFunc(events, func(e node.Event) bool { return e.Kind == kind && e.Name == name }) {
			return true, nil
		}
		if err == nil && !running {
			err = errors.New("the cluster's process 1 ended")
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("wait for %s %s: %w", name, kind, err)
	}
	return nil
}

// explain adds to an error which component failed, and the end of its log.
func (c *Cluster) explain(err error) error {
	if err == nil {
		return nil
	}
	log := filepath.Join(c.dir, initLog)
	events, readErr := node.Events(c.dir)
	if readErr != nil {
		return errors.Join(err, readErr)
	}
	for _, event := range events {
		if event.Kind == node.Failed && event.Name != "" {
			err = fmt.Errorf("%w: %s %s", err, event.Name, event.Detail)
			log = filepath.Join(c.LogDir(), event.Name+".log")
			break
		}
	}
	content, readErr := os.ReadFile(log)
	if readErr != nil || len(bytes.TrimSpace(content)) == 0 {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return fmt.Errorf("%w; the last lines of %s:\n%s", err, log,
		strings.Join(lines[max(0, len(lines)-logLines):], "\n"))
}
