package gatewaywire

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
)

// The protocols of public ports: of connections and of datagrams, which are carried as they are.
const (
	TCP = "TCP"
	UDP = "UDP"
	// TLS is not of a port: connections to a host at the port of HTTPS are carried with their TLS.
	TLS = "TLS"
)

// IsPort reports whether a protocol is that of a public port, and not of a host.
func IsPort(protocol string) bool { return protocol == TCP || protocol == UDP }

// Headers of a Connection. Visitors cannot send them: a request of theirs is never CONNECT.
const (
	headerVisitor  = "Pipeops-Visitor-Address"
	headerAt       = "Pipeops-Public-Port"
	headerProtocol = "Pipeops-Port-Protocol"
	headerRealIP   = "X-Real-Ip"
	headerID       = "X-Request-Id"
)

// Connection is a visitor's connection to a public port or to a host that ends TLS itself, or a
// flow of datagrams between an address and a port. A public stream begins with it as a request
// CONNECT (RFC 9110, section 9.3.6). After the answer 200 it carries the connection's bytes, or the
// datagrams as Packets has them.
type Connection struct {
	ID string // in the logs of both ends
	// Protocol is TCP, UDP or TLS.
	Protocol string
	// Host is the App's below the gateway's domain, or with TLS the host of the route, which may be
	// a wildcard. Port is the one of the App's Service. They name a route of the agent, which
	// decides where it leads.
	Host string
	Port int32
	// Visitor is where the connection comes from, and At the public port that it came to.
	Visitor, At netip.AddrPort
}

// Request returns the request that begins the stream.
func (c Connection) Request() *http.Request {
	target := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	return &http.Request{
		Method: http.MethodConnect, URL: &url.URL{Host: target}, Host: target, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{
			headerID: {c.ID}, headerRealIP: {c.Visitor.Addr().String()}, headerVisitor: {c.Visitor.String()}, headerAt: {c.At.String()},
			headerProtocol: {c.Protocol},
			"User-Agent":   nil, // net/http would add its own
		},
	}
}

var (
	errNoPort     = errors.New("the target is not a host and a port")
	errNoProtocol = errors.New(headerProtocol + " is neither " + TCP + " nor " + UDP + " nor " + TLS)
)

// ReadConnection returns the connection that a request begins.
func ReadConnection(r *http.Request) (Connection, error) {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		return Connection{}, errNoPort
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" {
		return Connection{}, errNoPort
	}
	c := Connection{ID: r.Header.Get(headerID), Protocol: r.Header.Get(headerProtocol), Host: host, Port: int32(n)}
	if !IsPort(c.Protocol) && c.Protocol != TLS {
		return Connection{}, errNoProtocol
	}
	if c.Visitor, err = netip.ParseAddrPort(r.Header.Get(headerVisitor)); err != nil {
		return Connection{}, fmt.Errorf("%s: %w", headerVisitor, err)
	}
	if c.At, err = netip.ParseAddrPort(r.Header.Get(headerAt)); err != nil {
		return Connection{}, fmt.Errorf("%s: %w", headerAt, err)
	}
	return c, nil
}
