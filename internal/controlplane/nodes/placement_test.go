package nodes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// placements are the agents' two best of so many nodes.
func placements(agents, nodes int) map[string][]string {
	addresses := make([]string, nodes)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("node-%d.example.com:7000", i)
	}
	all := map[string][]string{}
	for i := range agents {
		id := fmt.Sprintf("agent%d", i)
		all[id] = placed(id, addresses, TunnelsEach)
	}
	return all
}

func TestAgentsAreSpreadEvenlyOverNodes(t *testing.T) {
	const agents, nodes = 10000, 5
	first, any := map[string]int{}, map[string]int{}
	for _, best := range placements(agents, nodes) {
		require.Len(t, best, TunnelsEach)
		assert.NotEqual(t, best[0], best[1])
		first[best[0]]++
		for _, address := range best {
			any[address]++
		}
	}
	for address := range any {
		assert.InEpsilon(t, agents/nodes, first[address], 0.06, "first choices of %s", address)
		assert.InEpsilon(t, agents*TunnelsEach/nodes, any[address], 0.06, "tunnels of %s", address)
	}
}

func TestANodeThatComesMovesOnlyWhatItGains(t *testing.T) {
	const agents, nodes = 10000, 4
	before, after, moved := placements(agents, nodes), placements(agents, nodes+1), 0
	for id, was := range before {
		for _, address := range after[id] {
			if !slices.Contains(was, address) {
				assert.Equal(t, fmt.Sprintf("node-%d.example.com:7000", nodes), address, "nothing moves between those that were there")
				moved++
			}
		}
	}
	assert.InEpsilon(t, agents*TunnelsEach/(nodes+1), moved, 0.06)
}

func TestTunnelsOfNodesBehindOneAddressAreOne(t *testing.T) {
	nodes := []store.Node{{ID: "a", Tunnel: "lb.example.com:7000"}, {ID: "b", Tunnel: "lb.example.com:7000"}}
	assert.Empty(t, tunnelsFor("agent", nodes))
	assert.Empty(t, tunnelsFor("agent", nil))
	nodes[1].Tunnel = "b.example.com:7000"
	got := tunnelsFor("agent", nodes)
	assert.ElementsMatch(t, []controlapi.TunnelEndpoint{
		{Address: "lb.example.com:7000", ServerName: "lb.example.com"}, {Address: "b.example.com:7000", ServerName: "b.example.com"},
	}, got)
	slices.Reverse(nodes)
	assert.Equal(t, got, tunnelsFor("agent", nodes), "in whatever order the nodes come")
}
