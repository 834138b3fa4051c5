package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/test/cluster/internal/node"
	"github.com/pipeops/pipeops-vm-agent/test/filelock"
)

// maxClusters is how many clusters fit into the address plan, and thus run at
// once on one machine.
const maxClusters = 64

const devicePrefix = "ptest"

// network is the addresses of one cluster. Each cluster has its own, for pods
// and Services too, so that the machine can have routes to all of them.
type network struct {
	Index int `json:"index"`
}

func (n network) link() netip.Prefix      { return prefix(200, n.Index, 30) }
func (n network) pods() netip.Prefix      { return prefix(64+n.Index, 0, 16) }
func (n network) simulated() netip.Prefix { return prefix(64+n.Index, 128, 17) }
func (n network) services() netip.Prefix  { return prefix(128+n.Index, 0, 16) }
func (n network) host() netip.Addr        { return nth(n.link(), 1) }
func (n network) node() netip.Addr        { return nth(n.link(), 2) }
func (n network) apiService() netip.Addr  { return nth(n.services(), 1) }
func (n network) dns() netip.Addr         { return nth(n.services(), 10) }
func (n network) device() string          { return devicePrefix + strconv.Itoa(n.Index) }

// prefix returns 10.B.C.0/BITS.
func prefix(b, c, bits int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(b), byte(c)}), bits)
}

func nth(p netip.Prefix, n byte) netip.Addr {
	bytes := p.Addr().As4()
	bytes[3] += n
	return netip.AddrFrom4(bytes)
}

// connect joins the cluster whose process 1 is pid to the machine.
func (n network) connect(ctx context.Context, pid int) error {
	device, nodeIP := n.device(), n.node().String()
	return node.IPBatch(ctx,
		fmt.Sprintf("link add %s type veth peer name eth0 netns %d", device, pid),
		fmt.Sprintf("address add %s/%d dev %s", n.host(), n.link().Bits(), device),
		fmt.Sprintf("link set %s up", device),
		fmt.Sprintf("route add %s via %s", n.pods(), nodeIP),
		fmt.Sprintf("route add %s via %s", n.services(), nodeIP),
	)
}

// disconnect removes the interface and with it the routes. The kernel does so
// too, but only when the last connection of the cluster has timed out.
func (n network) disconnect(ctx context.Context) error {
	if !n.connected() {
		return nil
	}
	err := node.IPBatch(ctx, "link delete "+n.device())
	if err != nil && !n.connected() {
		return nil // the kernel was faster
	}
	return err
}

func (n network) connected() bool {
	_, err := os.Stat(filepath.Join("/sys/class/net", n.device()))
	return err == nil
}

// reservation holds a network for as long as the lock on the file is held by
// some process: the one that makes the cluster, and then its process 1.
type reservation struct {
	network
	file *os.File
}

// reserve takes the first free network that usable accepts. The locks are in a
// directory that all users and caches of the machine share.
func reserve(dir string, usable func(network) bool) (*reservation, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil { // only locks
		return nil, fmt.Errorf("reserve network: %w", err)
	}
	for index := range maxClusters {
		n := network{Index: index}
		if !usable(n) {
			continue
		}
		file, err := filelock.Try(filepath.Join(dir, fmt.Sprintf("network-%d.lock", index)))
		if err != nil {
			return nil, fmt.Errorf("reserve network: %w", err)
		}
		if file != nil {
			return &reservation{network: n, file: file}, nil
		}
	}
	return nil, fmt.Errorf("none of the %d address ranges for test clusters is free: see `cluster list`, and `ip route` for other uses of 10.64.0.0/10, 10.128.0.0/10 and 10.200.0.0/16", maxClusters)
}

// usableBeside reports whether a network takes nothing away from the machine's routes: none of them
// leads to a part of its ranges. Wider routes are fine, ours just go first.
func usableBeside(routes []netip.Prefix) func(network) bool {
	return func(n network) bool {
		return !slices.ContainsFunc(routes, func(route netip.Prefix) bool {
			return inside(route, n.link()) || inside(route, n.pods()) || inside(route, n.services())
		})
	}
}

func inside(inner, outer netip.Prefix) bool {
	return inner.Bits() >= outer.Bits() && outer.Contains(inner.Addr())
}

// hostRoutes reads the machine's IPv4 routes, except those to clusters: the locks show which of
// these are in use.
func hostRoutes() ([]netip.Prefix, error) {
	content, err := os.ReadFile("/proc/net/route")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	return parseRoutes(string(content))
}

// parseRoutes reads the kernel's table, whose addresses are the bytes of memory
// as one hexadecimal number.
func parseRoutes(table string) ([]netip.Prefix, error) {
	var routes []netip.Prefix
	for i, line := range strings.Split(strings.TrimSpace(table), "\n") {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 8 || strings.HasPrefix(fields[0], devicePrefix) {
			continue
		}
		destination, err := strconv.ParseUint(fields[1], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("read routes: %w", err)
		}
		mask, err := strconv.ParseUint(fields[7], 16, 32)
		if err != nil {
			return nil, fmt.Errorf("read routes: %w", err)
		}
		var address [4]byte
		binary.NativeEndian.PutUint32(address[:], uint32(destination))
		routes = append(routes, netip.PrefixFrom(netip.AddrFrom4(address), bits.OnesCount32(uint32(mask))))
	}
	return routes, nil
}
