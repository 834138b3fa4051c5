package figures

import (
	"fmt"
	"slices"
)

// The bounds of the tunnel; all but leastFar are ratios.
const (
	leastRate     = 0.65
	leastBulk     = 0.5
	leastFar      = 180 // MB/s
	mostStalled   = 1.2
	mostFullSpeed = 2.0
	leastAhead    = 1.4
)

// Tunnel is the tunnel beside its peers.
var Tunnel = &Part{
	Name: "tunnel", Command: "make bench-tunnel", Page: "contributing/bench.md",
	Definitions: slices.Concat(ofProtocol("http/1.1", "HTTP/1.1"), ofProtocol("h2", "HTTP/2"), aheadOf("frp", "chisel", "konnectivity"),
		[]Definition{{"tunnel.reconnect", "back after its relay was killed", "s", nil}}),
}

// ofProtocol returns figures of ours to direct TLS, both of a protocol.
func ofProtocol(protocol, name string) []Definition {
	id, of := "tunnel."+protocol+".", name+": "
	return []Definition{
		{id + "rps50", of + "requests/s of 50 clients, to direct TLS", "", atLeast(leastRate)},
		{id + "rps200", of + "requests/s of 200 clients, to direct TLS", "", nil},
		{id + "p99", of + "p99 of 50 clients, to direct TLS", "", nil},
		{id + "p50", of + "p50 of one client, to direct TLS", "", nil},
		{id + "down", of + "bulk down, to direct TLS", "", atLeast(leastBulk)},
		{id + "up", of + "bulk up, to direct TLS", "", atLeast(leastBulk)},
		{id + "far.down", of + "bulk down, far", "MB/s", atLeast(leastFar)},
		{id + "far.up", of + "bulk up, far", "MB/s", atLeast(leastFar)},
		{id + "stalled", of + "p99 of 50 beside a stalled download, to alone", "", atMost(mostStalled)},
		{id + "full", of + "p99 of 50 beside a download at full speed, to alone, to the same of direct TLS", "", atMost(mostFullSpeed)},
	}
}

// aheadOf returns rates to those over peers.
func aheadOf(peers ...string) (all []Definition) {
	for _, peer := range peers {
		for _, clients := range []int{50, 200} {
			all = append(all, Definition{fmt.Sprintf("tunnel.ahead.%s.%d", peer, clients),
				fmt.Sprintf("requests/s of %d clients, to those over %s", clients, peer), "", atLeast(leastAhead)})
		}
	}
	return all
}
