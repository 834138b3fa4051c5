package egress_test

import (
	"net"
	"net/netip"
	"net/url"
	"testing"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
)

// FuzzCheck: in whatever way an address is written, a guard without exceptions lets through none
// of the machine itself, and an IPv4 address counts as itself in each of its IPv6 forms.
func FuzzCheck(f *testing.F) {
	for _, address := range []string{
		"127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1%eth0", "fd00:ec2::254", "0.0.0.0", "::", "2001:db8::1", "192.0.2.1",
	} {
		f.Add(address)
	}
	f.Fuzz(func(t *testing.T, text string) {
		a, err := netip.ParseAddr(text)
		if err != nil {
			return
		}
		refused := egress.Guard{}.Check(a) != nil
		ip := net.IP(a.AsSlice())
		if !refused && (ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsUnspecified()) {
			t.Fatalf("%s is let through", a)
		}
		if a.Is4() && refused != (egress.Guard{}.Check(netip.AddrFrom16(a.As16())) != nil) {
			t.Fatalf("%s is judged otherwise as an IPv6 address", a)
		}
		if a.Zone() == "" && refused != (egress.Guard{Hosts: egress.EveryHost}.CheckURL(&url.URL{Scheme: "https", Host: net.JoinHostPort(text, "443")}) != nil) {
			t.Fatalf("%s is judged otherwise in a URL", a)
		}
		plain := egress.Plain(a).WithZone("")
		all := netip.PrefixFrom(plain, plain.BitLen())
		if a.Zone() == "" && (egress.Guard{Allowed: []netip.Prefix{all}}).Check(a) != nil {
			t.Fatalf("the exception %s does not count", all)
		}
	})
}
