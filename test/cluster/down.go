package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

const downTimeout = time.Minute

// Down removes the cluster. Nothing stays running, mounted, routed or written, except the cache of
// built parts. It may be repeated.
func (c *Cluster) Down(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, downTimeout)
	defer cancel()
	unlock, err := lockName(ctx, c.Name)
	if err != nil {
		return err
	}
	defer unlock()
	// Another process may have replaced the cluster since we looked.
	current, err := find(c.Name)
	if err == nil {
		err = current.remove(ctx)
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return os.Remove(c.dir + lockSuffix)
}

const lockSuffix = ".lock"

// Down removes the cluster of that name, or its remains. It returns no error if there is none.
func Down(ctx context.Context, name string) error {
	c, err := find(name)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return c.Down(ctx)
}

func (c *Cluster) remove(ctx context.Context) error {
	if err := c.kill(ctx); err != nil {
		return fmt.Errorf("remove cluster %s: %w", c.Name, err)
	}
	if c.state.Started.IsZero() { // it had a directory, but nothing noted down yet
		return os.RemoveAll(c.dir)
	}
	err := errors.Join(
		c.disconnect(ctx),
		c.state.Cgroup.Remove(ctx),
	)
	if err != nil { // the directory records what is left to remove
		return fmt.Errorf("remove cluster %s: %w", c.Name, err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove cluster %s: %w", c.Name, err)
	}
	return nil
}

// disconnect leaves the interface alone if it is that of another cluster, which
// got the index after ours had died: then the index is locked.
func (c *Cluster) disconnect(ctx context.Context) error {
	file, err := filelock.Try(filepath.Join(lockDir, fmt.Sprintf("network-%d.lock", c.state.Network.Index)))
	if err != nil || file == nil {
		return err
	}
	return errors.Join(c.state.Network.disconnect(ctx), file.Close())
}

// kill ends process 1; the kernel then kills everything in its namespace before
// it lets it go.
func (c *Cluster) kill(ctx context.Context) error {
	if !c.Running() {
		return nil
	}
	if err := unix.Kill(c.state.Init.PID, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", c.state.Init.PID, err)
	}
	ended := func(context.Context) (bool, error) { return !c.Running(), nil }
	if err := wait.PollUntilContextCancel(ctx, pollInterval, true, ended); err != nil {
		return fmt.Errorf("process %d does not end: %w", c.state.Init.PID, err)
	}
	return nil
}

// lockName keeps other processes from starting or removing the same cluster.
func lockName(ctx context.Context, name string) (unlock func(), err error) {
	run, err := runDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(run, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of clusters: %w", err)
	}
	release, err := filelock.Wait(ctx, filepath.Join(run, name+lockSuffix), nil)
	if err != nil {
		return nil, fmt.Errorf("lock cluster %s: %w", name, err)
	}
	return func() { _ = release() }, nil
}
