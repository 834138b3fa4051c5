package agent

import (
	"context"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// phaseDegraded is reported in the heartbeat if some tunnels are up, but not all.
const phaseDegraded = "degraded"

// tunnels opens the agent's tunnels, and follows how they are.
type tunnels struct {
	config  config.Config
	replica string
	log     zerolog.Logger
	health  *health
	cluster *clusterID
	current *currentIdentity
	clients *clients
	nodes   *tunnelNodes
	news    *news
	beat    wake.Signal
}

// open creates the tunnels to the nodes that were stored last, which may be gone. In that case the
// identity's own node is reached, and the next heartbeat reports others.
func (t *tunnels) open(ctx context.Context) (*tunnel.Set, error) {
	t.cluster.try(ctx) // calls and tunnels name the cluster
	id := t.current.Load()
	own, secure := endpoint(id.Tunnel), t.current.following((*identity.Identity).TLS)
	web, err := t.clients.tls()
	if err != nil {
		return nil, err
	}
	tun, err := tunnel.NewSet(tunnel.SetConfig{
		Config: tunnel.Config{
			ServerAddress: own.Address, ServerName: own.ServerName, AgentID: id.AgentID,
			Instance: t.replica, Cluster: t.cluster.known, Proxy: proxy.FromEnvironment(), Log: t.log, TakePublic: t.config.EnableIngressSync,
			TLS:       func(context.Context) (*tls.Config, error) { return secure(), nil },
			Websocket: t.config.ControlPlaneURL, WebsocketTLS: func(context.Context) (*tls.Config, error) { return web(), nil },
		},
		Refused: t.refused, RefusedPause: refusedPause,
	})
	if err != nil {
		return nil, err
	}
	_ = t.nodes.choose(tun, id, id.Tunnels)
	return tun, nil
}

// refusedPause is how long the tunnel to a node pauses after its frps refused this agent and its
// certificate. The control plane decides whether that is final.
const refusedPause = 15 * time.Second

// refused makes the next heartbeat report why. Its answer ends the agent, or the node is tried
// again. The other tunnel is not affected.
func (t *tunnels) refused(at tunnel.Endpoint, err error) {
	t.log.Error().Err(err).Str("node", at.Address).Dur("retryIn", refusedPause).Msg("the tunnel is refused")
	t.beat.Raise()
}

// watch makes the readiness follow the tunnels and the App engine, and requests a heartbeat when a
// tunnel comes up or is lost. Failed attempts cause none: each such heartbeat would be a handshake
// with a control plane that may be overloaded.
func (t *tunnels) watch(ctx context.Context, tun *tunnel.Set, engine *app.Engine) error {
	t.health.ask("apps", func() string {
		if !engine.Ready() {
			return "reading the cluster"
		}
		return stateOK
	})
	t.health.ask("tunnel", func() string { return tunnelState(tun.Status()) })
	t.health.remark("tunnels", func() string { return tunnelsDegraded(tun.Status()) })
	returns, told := 0, []string(nil)
	for {
		changed := tun.Changed()
		s := tun.Status()
		if s.Phase != tunnel.Connected || s.Returns != returns {
			t.news.expire() // no refresh request could arrive while none was up
		}
		if up := nodesUp(s); returns != s.Returns || !slices.Equal(up, told) {
			told = up
			t.beat.Raise()
		}
		returns = s.Returns
		select {
		case <-changed:
		case <-t.current.fresh:
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
