package egress

import (
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

// Guard keeps fetches from loopback, link-local and metadata addresses. Its zero value allows no
// exception.
type Guard struct {
	// Allowed are exceptions, such as 127.0.0.0/8 for a repository on the same machine.
	Allowed []netip.Prefix
}

// RefusedError is the error of a connection that a Guard refuses.
type RefusedError struct{ Address netip.Addr }

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is a loopback, link-local or metadata address", e.Address)
}

// Fix returns what can be done about it.
func (e *RefusedError) Fix() string {
	return "name a server that is neither on the agent's own machine nor link-local, or have the operator of the agent allow the address in " + Setting
}

// Check returns a *RefusedError if nothing may be fetched from the address.
func (g Guard) Check(a netip.Addr) error {
	a = Plain(a)
	if within(g.Allowed, a) || !IsMetadata(a) && !a.IsLoopback() {
		return nil
	}
	return &RefusedError{a}
}

// Control is for net.Dialer: it judges the address that a name was resolved to.
func (g Guard) Control(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %s: %w", address, err)
	}
	return g.Check(to.Addr())
}

// CheckURL judges a host that is written as an address, which a proxy would connect to unseen.
func (g Guard) CheckURL(u *url.URL) error {
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		return g.Check(a)
	}
	return nil
}

// Transport returns a copy of a transport that connects through the guard. The transport's proxy is
// the operator's choice, and may be anywhere; the guard judges only addresses in URLs then, because
// the proxy resolves names.
func (g Guard) Transport(base *http.Transport) http.RoundTripper {
	direct, proxied := base.Clone(), base.Clone()
	direct.Proxy = nil
	direct.DialContext = (&net.Dialer{Timeout: dialTimeout, Control: g.Control}).DialContext
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
