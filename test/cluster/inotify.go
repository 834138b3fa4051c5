package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The kernel bounds what all processes of a user watch by inotify, and so what all clusters of root
// watch together. At the bound, the kubelet and kube-proxy end with "too many open files", which
// does not name the cause.
const (
	inotifyDir = "/proc/sys/fs/inotify"
	// neededInstances is what one cluster takes: 18 were counted.
	neededInstances = 32
)

// inotifyLimit is one of the kernel's bounds.
type inotifyLimit struct {
	name string
	want int // for many clusters side by side; what kind advises for instances
	need int // for one
}

var inotifyLimits = []inotifyLimit{
	{"max_user_instances", 512, neededInstances},
	{"max_user_watches", 65536, 4096},
}

// raiseInotify raises limits that are too low, until the machine restarts, and reports it. If it
// may not, as in many containers, it fails if a cluster would, and names the fix.
func raiseInotify(out io.Writer) error {
	var refused error
	for _, l := range inotifyLimits {
		path := filepath.Join(inotifyDir, l.name)
		content, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read the bound on inotify: %w", err)
		}
		have, err := strconv.Atoi(strings.TrimSpace(string(content)))
		if err != nil {
			return fmt.Errorf("read the bound on inotify: %s: %w", path, err)
		}
		if have >= l.want {
			continue
		}
		switch err := os.WriteFile(path, []byte(strconv.Itoa(l.want)), 0o644); {
		case err == nil:
			fmt.Fprintf(out, "raised fs.inotify.%s from %d to %d, until this machine starts again\n", l.name, have, l.want)
		case have < l.need:
			return l.tooLow(fmt.Errorf("it is %d, and cannot be raised from here: %w", have, err))
		default:
			refused = errors.Join(refused, err)
		}
	}
	if err := tryInstances(neededInstances); err != nil {
		return inotifyLimits[0].tooLow(errors.Join(err, refused))
	}
	return nil
}

func (l inotifyLimit) tooLow(why error) error {
	return fmt.Errorf("fs.inotify.%s is too low for a cluster: %w (fix, as root of the machine itself: sysctl -w fs.inotify.%[1]s=%[3]d)",
		l.name, why, l.want)
}

// tryInstances makes that many instances, and gives them back.
func tryInstances(n int) error {
	for have := range n {
		fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
		if err != nil {
			return fmt.Errorf("only %d of the %d instances that it takes are left: %w", have, n, err)
		}
		defer unix.Close(fd) //nolint:errcheck // all of them at once, below the bound
	}
	return nil
}
