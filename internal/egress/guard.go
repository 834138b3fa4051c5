package egress

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

const dialTimeout = 30 * time.Second

// Setting is the environment variable of the agent that names exceptions.
const Setting = "PIPEOPS_FETCH_ADDRESSES"

// Guard keeps fetches from loopback, link-local and metadata addresses, and from hosts that the
// cluster owner's policy does not list. Its zero value allows no host.
type Guard struct {
	// Allowed are exceptions, such as 127.0.0.0/8 for a repository on the same machine.
	Allowed []netip.Prefix
	// Hosts returns the hosts that the policy lists at that moment; nil allows none. EveryHost is
	// for programs without a policy.
	Hosts func() Hosts
}

// RefusedError is the error of a connection that a Guard refuses, for its host or its address.
type RefusedError struct {
	Host    string // what the policy does not list
	Source  string // where the policy is set
	Address netip.Addr
}

// ByPolicy reports whether the policy's list of hosts is the reason.
func (e *RefusedError) ByPolicy() bool { return !e.Address.IsValid() }

func (e *RefusedError) Error() string {
	if e.ByPolicy() {
		return fmt.Sprintf("%s in the customer's policy does not list the host %.253q", PolicyKey, e.Host)
	}
	return fmt.Sprintf("%s is a loopback, link-local or metadata address", e.Address)
}

// Fix returns what can be done about it.
func (e *RefusedError) Fix() string {
	if e.ByPolicy() {
		return "use a host that is listed there, or have the owner of the cluster add this one to " + PolicyKey + " in " + cmp.Or(e.Source, "the policy")
	}
	return "name a server that is neither on the agent's own machine nor link-local, or have the operator of the agent allow the address in " + Setting
}

// Check returns a *RefusedError if nothing may be fetched from the address.
func (g Guard) Check(a netip.Addr) error {
	a = Plain(a)
	if within(g.Allowed, a) || !IsMetadata(a) && !a.IsLoopback() {
		return nil
	}
	return &RefusedError{Address: a}
}

// EveryHost is a Guard's Hosts for a program that fetches what its own user names.
func EveryHost() Hosts { return Hosts{} }

// Listed returns the hosts from which the agent may fetch now.
func (g Guard) Listed() Hosts {
	if g.Hosts == nil {
		return Hosts{Patterns: []string{}}
	}
	return g.Hosts()
}

// CheckHost returns a *RefusedError if the policy lists hosts, and not this one.
func (g Guard) CheckHost(host string) error { return g.Listed().check(host) }

// Control is for net.Dialer: it judges the address that a name was resolved to.
func (g Guard) Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return g.Check(to.Addr())
}

// DialContext connects to HOST:PORT, if the guard allows the host and the address that it has.
func (g Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if err := g.CheckHost(host); err != nil {
		return nil, err
	}
	return (&net.Dialer{Timeout: dialTimeout, Control: g.Control}).DialContext(ctx, network, address)
}

// CheckURL judges the host of a URL. It judges an address in place of a name too, because a proxy
// would connect to that unseen.
func (g Guard) CheckURL(u *url.URL) error {
	if err := g.CheckHost(u.Hostname()); err != nil {
		return err
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return g.Check(a)
	}
	return nil
}

// Transport returns a copy of a transport that connects through the guard. The transport's proxy is
// the operator's choice, and may be anywhere; the guard judges only URLs then, because the proxy
// resolves names.
func (g Guard) Transport(base *http.Transport) http.RoundTripper {
	direct, proxied := base.Clone(), base.Clone()
	direct.Proxy = nil
	direct.DialContext = g.DialContext
	return &transport{guard: g, direct: direct, proxied: proxied, proxy: base.Proxy}
}

// transport has connections through a proxy apart from those that the guard judges.
type transport struct {
	guard           Guard
	direct, proxied *http.Transport
	proxy           func(*http.Request) (*url.URL, error)
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := t.guard.CheckURL(r.URL); err != nil {
		return nil, err
	}
	if t.proxy == nil {
		return t.direct.RoundTrip(r)
	}
	via, err := t.proxy(r)
	if err != nil {
		return nil, err
	}
	if via == nil {
		return t.direct.RoundTrip(r)
	}
	return t.proxied.RoundTrip(r)
}

// CloseIdleConnections is for http.Client's method of that name.
func (t *transport) CloseIdleConnections() {
	t.direct.CloseIdleConnections()
	t.proxied.CloseIdleConnections()
}
