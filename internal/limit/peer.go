package limit

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// prefix6 is how many bits of an IPv6 address count: a peer with one address of a network has all
// 2^64 of them (RFC 6177, section 2).
const prefix6 = 64

// PeerOf returns the peer that an address counts for: itself, or its network of 64 bits. An address
// that is not an IP address counts for the zero prefix.
func PeerOf(addr net.Addr) netip.Prefix {
	if tcp, ok := addr.(*net.TCPAddr); ok {
		return peer(tcp.AddrPort().Addr())
	}
	if addr == nil {
		return netip.Prefix{}
	}
	return PeerOfText(addr.String())
}

// PeerOfText is like PeerOf for host:port, as in http.Request.RemoteAddr.
func PeerOfText(hostPort string) netip.Prefix {
	parsed, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		return netip.Prefix{}
	}
	return peer(parsed.Addr())
}

func peer(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	bits := ip.BitLen()
	if ip.Is6() {
		bits = prefix6
	}
	p, err := ip.Prefix(bits)
	if err != nil { // not an address
		return netip.Prefix{}
	}
	return p
}

// Within returns a function that reports whether a peer is in one of the networks.
func Within(networks []netip.Prefix) func(netip.Prefix) bool {
	return func(p netip.Prefix) bool { return within(p, networks) }
}

// within reports whether a peer is in one of the networks.
func within(p netip.Prefix, networks []netip.Prefix) bool {
	return slices.ContainsFunc(networks, func(n netip.Prefix) bool { return n.Contains(p.Addr()) })
}

// ParseNetwork reads a network in CIDR form, or a single address.
func ParseNetwork(text string) (netip.Prefix, error) {
	n, err := netip.ParsePrefix(text)
	if address, single := netip.ParseAddr(text); single == nil && address.Zone() == "" {
		n, err = netip.PrefixFrom(address, address.BitLen()), nil
	}
	if err != nil || n.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is neither a network nor an address (fix: write it as 10.0.0.0/8 or 192.0.2.7)", printable.Clip(text))
	}
	return n.Masked(), nil
}
