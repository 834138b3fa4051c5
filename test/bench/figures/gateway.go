package figures

import "slices"

// The bounds of the gateway; the first five are ratios.
const (
	mostTunnelled   = 1.8
	leastPublicBulk = 0.5
	leastAheadVhost = 1.2
	mostBesideFlood = 2.0
	mostLookup      = 5    // µs
	mostChange      = 1000 // ms
	mostRouteMemory = 4    // KB
)

// Gateway is the gateway in tunnel mode, beside direct connections and frp's HTTPS vhost.
var Gateway = &Part{
	Name: "gateway", Command: "make bench-gateway", Page: "contributing/bench.md",
	Definitions: slices.Concat(ofVisitors("http/1.1", "HTTP/1.1"), ofVisitors("h2", "HTTP/2"), []Definition{
		{"gateway.ahead.frp", "HTTP/2: requests/s of 50 visitors, to those over frp's HTTPS vhost", "", atLeast(leastAheadVhost)},
		{"gateway.runner.p99", "p99 of a Runner's commands beside a public flood, to alone", "", atMost(mostBesideFlood)},
		{"gateway.runner.p99.past", "the same beside a flood past the tunnel", "", nil},
		{"gateway.host.p99", "p99 of a host beside another's flood, to alone", "", atMost(mostBesideFlood)},
		{"gateway.host.p99.past", "the same beside a flood past the tunnel", "", nil},
		{"gateway.lookup", "lookup of one of 1 000 hosts", "µs", atMost(mostLookup)},
		{"gateway.change", "a changed route serves, the slowest", "ms", atMost(mostChange)},
		{"gateway.memory", "memory a route", "KB", atMost(mostRouteMemory)},
	}),
}

// ofVisitors returns figures of tunnel mode to direct connections, both of a protocol.
func ofVisitors(protocol, name string) []Definition {
	id, of := "gateway."+protocol+".", name+": "
	return []Definition{
		{id + "rate", of + "time a request of 50 visitors, to direct", "", atMost(mostTunnelled)},
		{id + "p50", of + "p50 of one visitor, to direct", "", atMost(mostTunnelled)},
		{id + "down", of + "bulk down, to direct", "", atLeast(leastPublicBulk)},
	}
}
