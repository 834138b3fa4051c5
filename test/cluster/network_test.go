package cluster

import (
	"net/netip"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func anyNetwork(network) bool { return true }

func TestReserve_FirstFree(t *testing.T) {
	dir := t.TempDir()
	first, err := reserve(dir, anyNetwork)
	require.NoError(t, err)
	second, err := reserve(dir, anyNetwork)
	require.NoError(t, err)
	require.Equal(t, 0, first.Index)
	require.Equal(t, 1, second.Index)

	require.NoError(t, first.file.Close())
	again, err := reserve(dir, anyNetwork)
	require.NoError(t, err)
	require.Equal(t, 0, again.Index)
	require.NoError(t, again.file.Close())
	require.NoError(t, second.file.Close())
}

func TestReserve_SkipsUsed(t *testing.T) {
	routes := []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.0/8"), // wider than ours
		netip.MustParsePrefix("10.200.0.0/30"), // the link of 0
		netip.MustParsePrefix("10.65.7.0/24"),  // in the pods of 1
		netip.MustParsePrefix("10.130.0.0/16"), // the Services of 2
	}
	usable := usableBeside(routes)
	for index, want := range []bool{false, false, false, true} {
		require.Equal(t, want, usable(network{Index: index}), "index %d", index)
	}
}

func TestReserve_NothingFree(t *testing.T) {
	_, err := reserve(t.TempDir(), func(network) bool { return false })
	require.ErrorContains(t, err, "cluster list")
}

func TestNetwork_NoOverlap(t *testing.T) {
	var all []netip.Prefix
	for index := range maxClusters {
		n := network{Index: index}
		for _, p := range []netip.Prefix{n.link(), n.pods(), n.services()} {
			require.Equal(t, p.Masked(), p)
			for _, other := range all {
				require.False(t, p.Overlaps(other), "%s and %s", p, other)
			}
			all = append(all, p)
		}
		require.True(t, n.link().Contains(n.host()))
		require.True(t, n.link().Contains(n.node()))
		require.True(t, n.services().Contains(n.dns()))
		require.LessOrEqual(t, len(n.device()), 15, "the kernel's limit on names")
	}
}

func TestParseRoutes(t *testing.T) {
	const table = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n" +
		"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n" +
		"vpn0\t0000400A\t0200C80A\t0003\t0\t0\t0\t0000FFFF\t0\t0\t0\n" +
		"vpn0\t0000C80A\t00000000\t0001\t0\t0\t0\tFCFFFFFF\t0\t0\t0\n" +
		"ptest9\t0009C80A\t00000000\t0001\t0\t0\t0\tFCFFFFFF\t0\t0\t0\n"
	routes, err := parseRoutes(table)
	require.NoError(t, err)
	require.Equal(t, []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.64.0.0/16"), netip.MustParsePrefix("10.200.0.0/30"),
	}, routes)
	_, err = parseRoutes("header\nx y 0 0 0 0 0 0\n")
	require.Error(t, err)
}

func TestProcess_NotAnother(t *testing.T) {
	self, err := processOf(os.Getpid())
	require.NoError(t, err)
	require.True(t, self.alive())
	self.Start += "0"
	require.False(t, self.alive())
	require.False(t, process{}.alive())
}

func TestNames(t *testing.T) {
	for _, bad := range []string{"", "-", "UP", "../x", "a/b", "a-", "name.with.dots"} {
		_, err := find(bad)
		require.ErrorContains(t, err, "lower-case", bad)
	}
}
