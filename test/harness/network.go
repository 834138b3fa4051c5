package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ListeningPorts returns the addresses on which a process's network namespace listens, other than
// loopback.
func ListeningPorts(pid int) ([]string, error) {
	var found []string
	for _, table := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "net", table))
		if err != nil {
			return nil, err
		}
		for _, line := range strings.Split(string(text), "\n")[1:] {
			fields := strings.Fields(line)
			if len(fields) < 4 || fields[3] != fmt.Sprintf("%02X", unix.BPF_TCP_LISTEN) || strings.HasPrefix(fields[1], "0100007F:") {
				continue
			}
			var port int
			if _, err := fmt.Sscanf(fields[1][strings.LastIndex(fields[1], ":")+1:], "%X", &port); err != nil {
				return nil, err
			}
			found = append(found, fmt.Sprintf("%s/%d", strings.TrimSuffix(table, "6"), port))
		}
	}
	return found, nil
}
