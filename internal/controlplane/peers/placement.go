package peers

import (
	"bytes"
	"crypto/sha256"
	"net"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// TunnelsEach is how many peers an agent keeps a tunnel to, since either may fail.
const TunnelsEach = 2

// placed returns the n best addresses for an agent, the best first: those whose hash with the
// agent's name is highest (rendezvous hashing). All control planes get the same result, in any
// order of the addresses. An address that is added or removed moves only the agents that it gains
// or loses.
func placed(agentID string, addresses []string, n int) []string {
	type weighed struct {
		address string
		weight  [sha256.Size]byte
	}
	list := make([]weighed, 0, len(addresses))
	for _, a := range slices.Compact(slices.Sorted(slices.Values(addresses))) {
		list = append(list, weighed{a, sha256.Sum256([]byte(agentID + " " + a))})
	}
	slices.SortFunc(list, func(a, b weighed) int { return bytes.Compare(b.weight[:], a.weight[:]) })
	best := make([]string, 0, n)
	for _, w := range list[:min(n, len(list))] {
		best = append(best, w.address)
	}
	return best
}

// tunnelsFor returns the peers that an agent must keep a tunnel to. It returns none if all peers
// share one address, where a load balancer spreads the connections.
func tunnelsFor(agentID string, peers []store.Peer) []controlapi.TunnelEndpoint {
	addresses := make([]string, len(peers))
	for i, n := range peers {
		addresses[i] = n.Tunnel
	}
	best := placed(agentID, addresses, TunnelsEach)
	if len(best) < 2 {
		return nil
	}
	endpoints := make([]controlapi.TunnelEndpoint, len(best))
	for i, address := range best {
		endpoints[i] = Endpoint(address)
	}
	return endpoints
}

// Endpoint returns the tunnel's endpoint at an address.
func Endpoint(address string) controlapi.TunnelEndpoint {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	return controlapi.TunnelEndpoint{Address: address, ServerName: host}
}
