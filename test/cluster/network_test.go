package cluster

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

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
