package doctor

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/internal/cgroup"
)

// freeSpace returns what an ordinary user may write to the disk of dir.
func freeSpace(dir string) (bytes uint64, known bool, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false, err
	}
	return s.Bavail * uint64(s.Bsize), true, nil //nolint:gosec // a block has a size above nothing
}

// freeMemory returns the machine's, or what is left of this process' limit, whichever is less.
func freeMemory() (bytes uint64, known bool, err error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, false, err
	}
	defer func() { _ = file.Close() }()
	scan := bufio.NewScanner(file)
	for scan.Scan() {
		fields := strings.Fields(scan.Text())
		if len(fields) < 2 || fields[0] != "MemAvailable:" {
			continue
		}
		kibibytes, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			return 0, false, fmt.Errorf("/proc/meminfo: %w", err)
		}
		left := kibibytes << 10
		if m, limited := cgroup.Tightest("/", cgroup.Self); limited {
			left = min(left, uint64(max(m.Limit-m.Used, 0)))
		}
		return left, true, nil
	}
	return 0, false, errors.Join(scan.Err(), errors.New("/proc/meminfo does not say how much memory is available"))
}
