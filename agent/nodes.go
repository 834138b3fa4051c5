package agent

import (
	"context"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// nodesKeptEvery is the minimum interval of writes of the list of nodes, even if it changes more
// often: it only helps after a restart.
const nodesKeptEvery = time.Minute

// tunnelNodes chooses the frps nodes for tunnels from those that the control plane names, and keeps
// them for the next start. After the start only the heartbeats use it.
type tunnelNodes struct {
	store   *identityStore
	current *currentIdentity
	now     func() time.Time
	log     zerolog.Logger

	kept time.Time // when the list was last written
	said string    // what was wrong with the last list
}

// choose keeps tunnels to the first two of the nodes, or to the identity's own, and returns the
// chosen ones.
func (n *tunnelNodes) choose(tun *tunnel.Set, id *identity.Identity, told []controlapi.TunnelEndpoint) []controlapi.TunnelEndpoint {
	all := make([]tunnel.Endpoint, len(told))
	for i, node := range told {
		all[i] = endpoint(node)
	}
	chosen, err := tun.Keep(all, endpoint(id.Tunnel))
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != n.said && said != "" {
		n.log.Error().Err(err).Msg("the control plane named invalid nodes for tunnels; ignoring them")
	}
	n.said = said
	if len(told) == 0 {
		return nil
	}
	nodes := make([]controlapi.TunnelEndpoint, len(chosen))
	for i, e := range chosen {
		nodes[i] = controlapi.TunnelEndpoint{Address: e.Address, ServerName: e.ServerName}
	}
	return nodes
}

func endpoint(n controlapi.TunnelEndpoint) tunnel.Endpoint {
	return tunnel.Endpoint{Address: n.Address, ServerName: n.ServerName}
}

// take uses the nodes in a heartbeat's answer, and stores them for the next start.
func (n *tunnelNodes) take(ctx context.Context, tun *tunnel.Set, told []controlapi.TunnelEndpoint) {
	id := n.current.Load()
	nodes := n.choose(tun, id, told)
	if slices.Equal(nodes, id.Tunnels) || n.now().Sub(n.kept) < nodesKeptEvery {
		return
	}
	n.kept = n.now()
	if err := n.keep(ctx, id, nodes); err != nil {
		n.log.Warn().Err(err).Msg("failed to store the nodes that the control plane named; after a restart the agent uses the previous ones")
	}
}

// keep stores the nodes beside the stored identity. If that has another certificate, a renewal is
// in progress, which brings its own nodes.
func (n *tunnelNodes) keep(ctx context.Context, id *identity.Identity, nodes []controlapi.TunnelEndpoint) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	parts, version, err := n.store.Load(ctx)
	if err != nil {
		return err
	}
	stored, damaged := identity.Decode(parts)
	if damaged != nil || !stored.Same(id) {
		return nil
	}
	if !slices.Equal(stored.Tunnels, nodes) {
		saved, err := n.store.saveBeside(ctx, stored.WithTunnels(nodes), parts, version)
		if err != nil || !saved {
			return err // unsaved: another replica was first; this one saves the next list
		}
	}
	n.current.CompareAndSwap(id, id.WithTunnels(nodes))
	return nil
}
