package gateway

import (
	"cmp"
	"net"
	"net/netip"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// Limits bound what is under way at a time. Zero values select the defaults.
type Limits struct {
	// Requests is how many requests may be under way (16384), and RequestsPerAddress (512),
	// RequestsPerHost (1024) and RequestsPerAgent (1536) how many of them for one of these.
	Requests, RequestsPerAddress, RequestsPerHost, RequestsPerAgent int
}

func (l Limits) withDefaults() Limits {
	l.Requests = cmp.Or(l.Requests, 16384)
	l.RequestsPerAddress = cmp.Or(l.RequestsPerAddress, 512)
	l.RequestsPerHost = cmp.Or(l.RequestsPerHost, 1024)
	l.RequestsPerAgent = cmp.Or(l.RequestsPerAgent, 1536)
	return l
}

// requests counts the requests that are under way.
type requests struct{ addresses, hosts, agents *limit.Shares }

func newRequests(l Limits) requests {
	return requests{
		addresses: limit.NewShares(l.Requests, l.RequestsPerAddress), hosts: limit.NewShares(l.Requests, l.RequestsPerHost),
		agents: limit.NewShares(l.Requests, l.RequestsPerAgent),
	}
}

// enter counts a request, or returns what it is answered.
func (q requests) enter(v *visit) (leave func(), refused *failure) {
	var left []func()
	leave = func() {
		for _, f := range left {
			f()
		}
	}
	for _, share := range []struct {
		of   *limit.Shares
		name string
		full failure
	}{{q.addresses, peerOf(v.client), tooMany}, {q.hosts, v.host.Name, busy}, {q.agents, v.host.AgentID, busy}} {
		out, ok := share.of.Enter(share.name)
		if !ok {
			leave()
			return nil, &share.full
		}
		left = append(left, out)
	}
	return leave, nil
}

// peerOf returns what an address counts for.
func peerOf(client string) string { return limit.PeerOfText(net.JoinHostPort(client, "0")).String() }

// node returns an address as the header Forwarded has it (RFC 7239).
func node(client string) string {
	if ip, err := netip.ParseAddr(client); err == nil && ip.Is6() && !ip.Is4In6() {
		return `"[` + ip.String() + `]"`
	}
	return client
}

// quotable removes what must not be in a quoted string.
func quotable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '"' || r == '\\' || r < ' ' {
			return -1
		}
		return r
	}, text)
}
