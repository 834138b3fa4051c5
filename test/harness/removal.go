package harness

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// runningContainers has a directory for each container that containerd runs. It goes when
	// containerd has removed the container, as the last of it: after its processes, its control
	// groups and its mounts.
	runningContainers = "run/containerd/io.containerd.runtime.v2.task/k8s.io"
	// removalPoll is how exactly the time of a removal is known.
	removalPoll = 5 * time.Millisecond
)

// WatchRemoval checks whether containerd runs a container, by its name in a pod's status. It
// returns a function that waits until containerd has removed it and returns when that was.
func (s *System) WatchRemoval(container string) (func(context.Context) (time.Time, error), error) {
	id, ok := strings.CutPrefix(container, "containerd://")
	if !ok || id == "" {
		return nil, fmt.Errorf("container %q is none of containerd's", container)
	}
	return watchRemoval(filepath.Join("/proc", strconv.Itoa(s.Cluster.InitPID()), "root", runningContainers, id))
}

func watchRemoval(dir string) (func(context.Context) (time.Time, error), error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("containerd runs no such container: %w", err)
	}
	return func(ctx context.Context) (time.Time, error) {
		err := wait.PollUntilContextCancel(ctx, removalPoll, true, func(context.Context) (bool, error) {
			_, err := os.Stat(dir)
			if errors.Is(err, fs.ErrNotExist) {
				return true, nil
			}
			return false, err
		})
		if err != nil {
			return time.Time{}, fmt.Errorf("containerd has not removed %s: %w", filepath.Base(dir), err)
		}
		return time.Now(), nil
	}, nil
}
