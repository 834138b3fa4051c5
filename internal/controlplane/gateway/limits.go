package gateway

import (
	"cmp"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// Limits bound what is in progress at a time. Zero values select the defaults.
type Limits struct {
	// Requests are those that wait for their answer, or get one of a known length. Streams are the
	// others: WebSockets, server-sent events, gRPC, answers that go on without a known end, and
	// connections to public ports. Flows are those of datagrams: senders may forge addresses, and
	// so take no place of streams.
	Requests, Streams, Flows Most
}

// Most is how many may be in progress in all, of one address, for one host and for one agent. Of
// what an agent may have, one host gets at most twice as much as is free, and of all one agent
// likewise.
type Most struct{ All, PerAddress, PerHost, PerAgent int }

var (
	// DefaultRequests is the default of Limits for requests.
	DefaultRequests = Most{All: 16384, PerAddress: 512, PerHost: 1024, PerAgent: 1536}
	// DefaultStreams is the default of Limits for streams.
	DefaultStreams = Most{All: 65536, PerAddress: 4096, PerHost: 8192, PerAgent: 16384}
	// DefaultFlows is the default of Limits for flows.
	DefaultFlows = Most{All: 16384, PerAddress: 1024, PerHost: 4096, PerAgent: 8192}
)

func (m Most) or(defaults Most) Most {
	return Most{
		cmp.Or(m.All, defaults.All), cmp.Or(m.PerAddress, defaults.PerAddress), cmp.Or(m.PerHost, defaults.PerHost),
		cmp.Or(m.PerAgent, defaults.PerAgent),
	}
}

// WithDefaults returns the limits with no zero values.
func (l Limits) WithDefaults() Limits {
	return Limits{l.Requests.or(DefaultRequests), l.Streams.or(DefaultStreams), l.Flows.or(DefaultFlows)}
}

// underWay counts what is in progress of one kind.
type underWay struct {
	most      Most
	addresses *limit.Shares
	agents    *limit.Shares
	hosts     sync.Map // by agent, the *limit.Shares of its hosts
}

func newUnderWay(m Most) *underWay {
	return &underWay{most: m, addresses: limit.NewShares(m.All, m.PerAddress), agents: limit.NewFairShares(m.All, m.PerAgent)}
}

func (u *underWay) hostsOf(agentID string) *limit.Shares {
	if known, ok := u.hosts.Load(agentID); ok {
		return known.(*limit.Shares)
	}
	hosts, _ := u.hosts.LoadOrStore(agentID, limit.NewFairShares(u.most.PerAgent, u.most.PerHost))
	return hosts.(*limit.Shares)
}

// enter counts a visit, or returns what it is answered.
func (u *underWay) enter(v *visit) (leave func(), refused *failure) {
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
	}{{u.addresses, peerOf(v.client), tooMany}, {u.agents, v.host.AgentID, busy}, {u.hostsOf(v.host.AgentID), v.host.Name, busy}} {
		out, ok := share.of.Enter(share.name)
		if !ok {
			leave()
			return nil, &share.full
		}
		left = append(left, out)
	}
	return leave, nil
}

// stay counts a visit among the streams, whose answer may go on for long. If there is no place, one
// that has left HTTP is refused, and any other continues to count among the requests.
func (g *Gateway) stay(v *visit, resp *http.Response) error {
	if !gatewaywire.Stays(resp) {
		return nil
	}
	leave, refused := g.streams.enter(v)
	switch {
	case refused == nil:
		v.leave()
		v.leave = leave
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return refusedError{*refused}
	}
	return nil
}

// refusedError means that there is no place for a stream.
type refusedError struct{ failure }

func (e refusedError) Error() string { return e.word }

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
