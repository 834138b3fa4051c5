package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

const (
	// nodesKeptEvery is the minimum interval of writes of the list of nodes, even if it changes
	// more often: it only helps after a restart.
	nodesKeptEvery = time.Minute
	// phaseDegraded is reported in the heartbeat if some tunnels are up, but not all.
	phaseDegraded = "degraded"
)

// nodesState is what the heartbeats know about the frps nodes; only they use it.
type nodesState struct {
	kept time.Time // when the list was last written
	said string    // what was wrong with the last list
}

// newTunnels creates the tunnels to the nodes that were stored last, which may be gone. In that
// case the identity's own node is reached, and the next heartbeat reports others.
func (a *Agent) newTunnels(id *identity.Identity) (*tunnel.Set, error) {
	own, secure := endpoint(id.Tunnel), a.following((*identity.Identity).TLS)
	web, err := a.controlPlaneTLS()
	if err != nil {
		return nil, err
	}
	tun, err := tunnel.NewSet(tunnel.SetConfig{
		Config: tunnel.Config{
			ServerAddress: own.Address, ServerName: own.ServerName, AgentID: id.AgentID,
			Instance: a.replica, Cluster: a.knownCluster, Proxy: proxyFunc(), Log: a.log, TakePublic: a.opts.Config.EnableIngressSync,
			TLS:       func(context.Context) (*tls.Config, error) { return secure(), nil },
			Websocket: a.opts.Config.ControlPlaneURL, WebsocketTLS: func(context.Context) (*tls.Config, error) { return web(), nil },
		},
		Refused: a.tunnelRefused, RefusedPause: refusedPause,
	})
	if err != nil {
		return nil, err
	}
	_ = a.chooseNodes(tun, id, id.Tunnels)
	return tun, nil
}

// refusedPause is how long the tunnel to a node pauses after its frps refused this agent and its
// certificate. The control plane decides whether that is final.
const refusedPause = 15 * time.Second

// tunnelRefused makes the next heartbeat report why. Its answer ends the agent, or the node is
// tried again. The other tunnel is not affected.
func (a *Agent) tunnelRefused(at tunnel.Endpoint, err error) {
	a.log.Error().Err(err).Str("node", at.Address).Dur("retryIn", refusedPause).Msg("the tunnel is refused")
	a.beatSoon()
}

// chooseNodes keeps tunnels to the first two of the nodes, or to the identity's own, and returns
// the chosen ones.
func (a *Agent) chooseNodes(tun *tunnel.Set, id *identity.Identity, told []controlapi.TunnelEndpoint) []controlapi.TunnelEndpoint {
	all := make([]tunnel.Endpoint, len(told))
	for i, n := range told {
		all[i] = endpoint(n)
	}
	chosen, err := tun.Keep(all, endpoint(id.Tunnel))
	said := ""
	if err != nil {
		said = err.Error()
	}
	if said != a.nodes.said && said != "" {
		a.log.Error().Err(err).Msg("the control plane named nodes for tunnels that make no sense; they are passed over")
	}
	a.nodes.said = said
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

// takeNodes uses the nodes in a heartbeat's answer, and stores them for the next start.
func (a *Agent) takeNodes(ctx context.Context, tun *tunnel.Set, told []controlapi.TunnelEndpoint) {
	id := a.current.Load()
	nodes := a.chooseNodes(tun, id, told)
	if slices.Equal(nodes, id.Tunnels) || a.now().Sub(a.nodes.kept) < nodesKeptEvery {
		return
	}
	a.nodes.kept = a.now()
	if err := a.keepNodes(ctx, id, nodes); err != nil {
		a.log.Warn().Err(err).Msg("the control plane's nodes could not be kept; after a restart the agent begins with the ones of before")
	}
}

// keepNodes stores the nodes beside the stored identity. If that has another certificate, a renewal
// is in progress, which brings nodes of its own.
func (a *Agent) keepNodes(ctx context.Context, id *identity.Identity, nodes []controlapi.TunnelEndpoint) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	parts, version, err := a.store.Load(ctx)
	if err != nil {
		return err
	}
	stored, damaged := identity.Decode(parts)
	if damaged != nil || !stored.Same(id) {
		return nil
	}
	if !slices.Equal(stored.Tunnels, nodes) {
		saved, err := a.saveBeside(ctx, stored.WithTunnels(nodes), parts, version)
		if err != nil || !saved {
			return err // unsaved: another replica was first; this one saves the next list
		}
	}
	a.current.CompareAndSwap(id, id.WithTunnels(nodes))
	return nil
}

// watch makes the readiness follow the tunnels and the App engine, and requests a heartbeat when a
// tunnel comes up or is lost. Failed attempts cause none: each such heartbeat would be a handshake
// with a control plane that may be overloaded.
func (a *Agent) watch(ctx context.Context, tun *tunnel.Set, engine *app.Engine) error {
	a.health.ask("apps", func() string {
		if !engine.Ready() {
			return "reading the cluster"
		}
		return stateOK
	})
	a.health.ask("tunnel", func() string { return tunnelState(tun.Status()) })
	a.health.remark("tunnels", func() string { return tunnelsDegraded(tun.Status()) })
	returns, told := 0, []string(nil)
	for {
		changed := tun.Changed()
		s := tun.Status()
		if s.Phase != tunnel.Connected || s.Returns != returns {
			a.news.expire() // no refresh request could arrive while none was up
		}
		if up := nodesUp(s); returns != s.Returns || !slices.Equal(up, told) {
			told = up
			a.beatSoon()
		}
		returns = s.Returns
		select {
		case <-changed:
		case <-a.fresh:
			tun.Retry()
		case <-ctx.Done():
			return nil
		}
	}
}

// tunnelState returns stateOK as long as Runners can reach the agent.
func tunnelState(s tunnel.SetStatus) string {
	if s.Phase == tunnel.Connected {
		return stateOK
	}
	if len(s.Nodes) == 1 {
		return nodeState(s.Nodes[0])
	}
	return nodeStates(s)
}

// tunnelsDegraded names the tunnel that is missing while another one is up; empty when all are up.
func tunnelsDegraded(s tunnel.SetStatus) string {
	up, wanted := s.Up()
	if up == 0 || allUp(s) {
		return ""
	}
	return fmt.Sprintf("tunnels: %d of %d up; %s", up, wanted, nodeStates(s))
}

// nodesUp returns the servers to which a tunnel is up.
func nodesUp(s tunnel.SetStatus) (up []string) {
	for _, n := range s.Nodes {
		if n.Phase == tunnel.Connected {
			up = append(up, n.Address)
		}
	}
	return up
}

func allUp(s tunnel.SetStatus) bool {
	return !slices.ContainsFunc(s.Nodes, func(n tunnel.NodeStatus) bool { return n.Wanted && n.Phase != tunnel.Connected })
}

func nodeStates(s tunnel.SetStatus) string {
	var states []string
	for _, n := range s.Nodes {
		if n.Phase != tunnel.Connected {
			states = append(states, n.Address+" "+nodeState(n))
		}
	}
	return strings.Join(states, "; ")
}

func nodeState(n tunnel.NodeStatus) string {
	if n.LastError != "" {
		return string(n.Phase) + ": " + n.LastError
	}
	return string(n.Phase)
}

// tunnelPhase returns the phase for the heartbeat.
func tunnelPhase(s tunnel.SetStatus) string {
	if s.Phase == tunnel.Connected && !allUp(s) {
		return phaseDegraded
	}
	return string(s.Phase)
}
