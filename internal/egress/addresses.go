// Package egress decides to which hosts and addresses a program of ours connects when another party
// names the host: a webhook's receiver, a Git or chart repository, a registry. It judges the host
// and the address that it resolves to, on every connection, so that neither a redirect nor DNS
// leads elsewhere.
package egress

import (
	"net/netip"
	"slices"
)

// metadata are addresses at which clouds give credentials to every client on the machine, and
// others at which no server is.
var metadata = prefixes(
	"169.254.0.0/16", "fe80::/10", // link-local: most clouds' metadata
	"fd00:ec2::/32",                                                        // AWS: metadata, EKS Pod Identity, DNS, time (Amazon VPC User Guide)
	"fd20:ce::254/128",                                                     // Google Cloud, instances with IPv6 alone (Compute Engine, About VM metadata)
	"fd00:c1::a9fe:a9fe/128",                                               // Oracle Cloud (its SDK's instance principals)
	"192.0.0.192/32",                                                       // Oracle Cloud Classic
	"168.63.129.16/32",                                                     // Azure (What is IP address 168.63.129.16?)
	"100.100.100.200/32",                                                   // Alibaba Cloud
	"fd00:100::100:200/128",                                                // Alibaba Cloud (cloud-init, DataSourceAliYun)
	"fd00:42::42/128",                                                      // Scaleway (cloud-init, Scaleway)
	"fd00:a9fe:a9fe::1/128",                                                // Akamai (cloud-init, Akamai)
	"0.0.0.0/8", "::/128", "224.0.0.0/4", "ff00::/8", "255.255.255.255/32", // unspecified, multicast, broadcast
)

// private are addresses that are not on the internet (IANA special-purpose address registries), or
// that stand for others which may not be.
var private = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "::1/128", "fc00::/7", "fec0::/10",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16",
)

// nat64 addresses contain the IPv4 address to which they lead (RFC 6052).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, text := range list {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// IsMetadata reports whether an address is link-local, multicast, unspecified or a cloud's metadata
// service. Webhooks never go there; only an exception of a Guard allows fetches.
func IsMetadata(a netip.Addr) bool { return within(metadata, Plain(a)) }

// IsPrivate reports whether an address is not on the internet.
func IsPrivate(a netip.Addr) bool { return within(private, Plain(a)) }

// IsPublic reports whether an address is on the internet, or in one of the allowed networks.
func IsPublic(a netip.Addr, allowed []netip.Prefix) bool {
	a = Plain(a)
	return within(allowed, a) || !IsMetadata(a) && !IsPrivate(a)
}

// Plain returns the address that packets to another one reach: IPv4 out of its forms in IPv6, and
// no zone.
func Plain(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if nat64.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
