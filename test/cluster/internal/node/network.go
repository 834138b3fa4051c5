package node

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"

	"k8s.io/apimachinery/pkg/util/wait"
)

// uplink is the cluster's end of the pair of interfaces that joins it to the
// machine; package cluster makes it.
const uplink = "eth0"

func arrangeNetwork(ctx context.Context, config Config) error {
	if err := waitUplink(ctx); err != nil {
		return err
	}
	err := IPBatch(ctx,
		"link set lo up",
		"address add "+config.Address+" dev "+uplink,
		"link set "+uplink+" up",
		"route add default via "+config.Gateway,
	)
	if err != nil {
		return err
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644) // a kernel interface
}

func waitUplink(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, probeInterval, true, func(context.Context) (bool, error) {
		_, err := net.InterfaceByName(uplink)
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for interface %s: %w", uplink, err)
	}
	return nil
}

// IPBatch runs commands of ip(8).
func IPBatch(ctx context.Context, lines ...string) error {
	cmd := exec.CommandContext(ctx, "ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("set up network: %w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
}
