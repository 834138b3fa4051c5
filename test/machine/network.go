package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

const (
	lockDir     = "/run/lock/pipeops-test"
	maxNetworks = 32
)

// Network is the network of machines: they reach each other, this machine at Host, and nothing
// else. It has no DNS.
type Network struct {
	// Host is this machine's address.
	Host string

	index    int
	machines int
	lock     *os.File
}

// NewNetwork reserves a network. The kernel frees it when this process ends.
func NewNetwork() (*Network, error) {
	if err := os.MkdirAll(lockDir, 0o755); err != nil {
		return nil, err
	}
	for index := range maxNetworks {
		file, err := filelock.Try(filepath.Join(lockDir, fmt.Sprintf("machines-%d.lock", index)))
		if err != nil {
			return nil, err
		}
		if file == nil {
			continue
		}
		n := &Network{index: index, lock: file}
		n.Host = n.address(1)
		return n, n.bridge()
	}
	return nil, errors.New("no network for test machines is free: other tests run")
}

func (n *Network) address(last int) string { return fmt.Sprintf("10.201.%d.%d", n.index, last) }

func (n *Network) device(last int) string { return fmt.Sprintf("pmach%dx%d", n.index, last) }

// bridge makes the network. What a killed run has left is replaced.
func (n *Network) bridge() error {
	device := n.device(0)
	_ = exec.Command("ip", "link", "delete", device).Run() //nolint:noctx // instant
	return ip(context.Background(), nil,
		"link add "+device+" type bridge",
		fmt.Sprintf("address add %s/24 dev %s", n.Host, device),
		"link set "+device+" up")
}

// attach connects the machine whose process 1 is pid, and returns its address.
func (n *Network) attach(ctx context.Context, pid int) (string, error) {
	n.machines++
	address, device := n.address(n.machines+1), n.device(n.machines)
	_ = exec.CommandContext(ctx, "ip", "link", "delete", device).Run()
	err := ip(ctx, nil,
		fmt.Sprintf("link add %s type veth peer name host0 netns %d", device, pid),
		"link set "+device+" master "+n.device(0)+" up")
	if err != nil {
		return "", err
	}
	return address, ip(ctx, []string{"nsenter", "--target", strconv.Itoa(pid), "--net", "--"},
		"link set lo up",
		fmt.Sprintf("address add %s/24 dev host0", address),
		"link set host0 up",
		"route add default via "+n.Host)
}

// Close gives the network back.
func (n *Network) Close() error {
	return errors.Join(ip(context.Background(), nil, "link delete "+n.device(0)), n.lock.Close())
}

// ip runs lines of the ip command, behind what enters a machine.
func ip(ctx context.Context, enter []string, lines ...string) error {
	args := append(append([]string(nil), enter...), "ip", "-batch", "-")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set up the machines' network: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
