package harness

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// CutAgent silently drops every packet between the agent's pod and this machine, as a firewall or a
// dead line would. heal ends that.
func (s *System) CutAgent(ctx context.Context) (heal func() error, err error) {
	pod, err := s.AgentPod(ctx)
	if err != nil {
		return nil, err
	}
	family := "ip"
	if net.ParseIP(pod.Status.PodIP).To4() == nil {
		family = "ip6"
	}
	table := "pipeops_cut_" + strings.ReplaceAll(s.Name, "-", "_")
	rules := fmt.Sprintf(`table inet %[1]s {
	chain in { type filter hook input priority 0; %[2]s saddr %[3]s drop; }
	chain out { type filter hook output priority 0; %[2]s daddr %[3]s drop; }
}`, table, family, pod.Status.PodIP)
	if err := nft(ctx, rules); err != nil {
		return nil, err
	}
	return func() error { return nft(context.Background(), "delete table inet "+table) }, nil
}

func nft(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, out)
	}
	return nil
}

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
