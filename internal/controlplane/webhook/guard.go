package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"syscall"
)

// CheckURL returns what is wrong with a receiver's address.
func CheckURL(text string, allowHTTP bool) error {
	const form = "give https://HOST/PATH"
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Opaque != "":
		return errors.New("--url: is not a URL; " + form)
	case u.User != nil:
		return errors.New("--url: must not have a user or password: whoever lists webhooks would see it; the receiver verifies the signature instead")
	case u.Fragment != "":
		return errors.New("--url: has a #fragment, which is never sent; leave it out")
	case u.Scheme == "https", u.Scheme == "http" && allowHTTP:
		return nil
	case u.Scheme == "http":
		return errors.New("--url: is not https, so anybody on the way could read along; " + form + ", or, for a receiver on this very machine, add --allow-http")
	}
	return errors.New("--url: is not https; " + form)
}

// forbidden are addresses that the operator can never allow for a receiver: clouds give out
// credentials there to every client on the machine.
var forbidden = prefixes(
	"169.254.0.0/16", "fe80::/10", // link-local, and most clouds' metadata
	"168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::254/128", // Azure's, Alibaba's, Oracle's, AWS'
	"0.0.0.0/8", "::/128", "224.0.0.0/4", "ff00::/8", "255.255.255.255/32",
)

// private are addresses that are not on the internet (IANA's special-purpose registries), or that
// may stand for such addresses.
var private = prefixes(
	"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8", "::1/128", "fc00::/7", "fec0::/10",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
	"::/96", "64:ff9b:1::/48", "100::/64", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20", "5f00::/16",
)

// nat64 addresses contain an IPv4 address, to which they lead.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, text := range list {
		out[i] = netip.MustParsePrefix(text)
	}
	return out
}

// guard decides which addresses may be called.
type guard struct {
	// loopbackOnly is for http, whose traffic others must not be able to read.
	loopbackOnly bool
	allowPrivate bool
}

// control returns a net.Dialer's Control. It gets the address of a name right before the
// connection, so a name that resolves to another address next time is still checked.
func (g guard) control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return g.check(to.Addr())
}

func (g guard) check(to netip.Addr) error {
	to = to.Unmap().WithZone("")
	if nat64.Contains(to) {
		b := to.As16()
		to = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case g.loopbackOnly && !to.IsLoopback():
		return fmt.Errorf("%s is not this machine: http is for receivers on it alone; use https", to)
	case g.loopbackOnly:
		return nil
	case within(forbidden, to):
		return fmt.Errorf("%s is a link-local, metadata or multicast address, to which nothing is sent", to)
	case !g.allowPrivate && within(private, to):
		return fmt.Errorf("%s is a private address; if the receiver is meant to be there, create the webhook with --allow-private", to)
	}
	return nil
}

func within(list []netip.Prefix, a netip.Addr) bool {
	for _, p := range list {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
