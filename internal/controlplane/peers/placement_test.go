package peers

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// placements are the agents' two best of so many peers.
func placements(agents, peers int) map[string][]string {
	addresses := make([]string, peers)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("peer-%d.example.com:7000", i)
	}
	all := map[string][]string{}
	for i := range agents {
		id := fmt.Sprintf("agent%d", i)
		all[id] = placed(id, addresses, TunnelsEach)
	}
	return all
}

func TestPlacement_SpreadsEvenly(t *testing.T) {
	const agents, peers = 10000, 5
	first, any := map[string]int{}, map[string]int{}
	for _, best := range placements(agents, peers) {
		require.Len(t, best, TunnelsEach)
		assert.NotEqual(t, best[0], best[1])
		first[best[0]]++
		for _, address := range best {
			any[address]++
		}
	}
	for address := range any {
		assert.InEpsilon(t, agents/peers, first[address], 0.06, "first choices of %s", address)
		assert.InEpsilon(t, agents*TunnelsEach/peers, any[address], 0.06, "tunnels of %s", address)
	}
}

func TestPlacement_MovesFew(t *testing.T) {
	const agents, peers = 10000, 4
	before, after, moved := placements(agents, peers), placements(agents, peers+1), 0
	for id, was := range before {
		for _, address := range after[id] {
			if !slices.Contains(was, address) {
				assert.Equal(t, fmt.Sprintf("peer-%d.example.com:7000", peers), address, "nothing moves between those that were there")
				moved++
			}
		}
	}
	assert.InEpsilon(t, agents*TunnelsEach/(peers+1), moved, 0.06)
}

func TestPlacement_SharedAddress(t *testing.T) {
	peers := []store.Peer{{ID: "a", Tunnel: "lb.example.com:7000"}, {ID: "b", Tunnel: "lb.example.com:7000"}}
	assert.Empty(t, tunnelsFor("agent", peers))
	assert.Empty(t, tunnelsFor("agent", nil))
	peers[1].Tunnel = "b.example.com:7000"
	got := tunnelsFor("agent", peers)
	assert.ElementsMatch(t, []controlapi.TunnelEndpoint{
		{Address: "lb.example.com:7000", ServerName: "lb.example.com"}, {Address: "b.example.com:7000", ServerName: "b.example.com"},
	}, got)
	slices.Reverse(peers)
	assert.Equal(t, got, tunnelsFor("agent", peers), "in whatever order the peers come")
}
