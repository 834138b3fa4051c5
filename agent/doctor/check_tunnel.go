package doctor

import (
	"context"
	"crypto/tls"
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// tunnel connects to the FRP ports as the agent does, up to the login, so that a running agent
// keeps its tunnels. If one of two nodes does not respond, that is not a failure: the agent works
// without it.
func (n *network) tunnel(ctx context.Context) []Finding {
	if n.endpoint.Address == "" {
		return skipped("its address comes with the identity, or from the control plane for a good token")
	}
	settings, proof, err := n.tunnelTLS()
	if err != nil {
		return failure(err, fixConfiguration)
	}
	nodes := []controlapi.TunnelEndpoint{n.endpoint}
	if n.id != nil && len(n.id.Tunnels) > 0 {
		nodes = n.id.Tunnels[:min(len(n.id.Tunnels), tunnel.SetSize)]
	}
	found := make([][]Finding, len(nodes))
	var probes sync.WaitGroup
	for i, node := range nodes {
		probes.Go(func() { found[i] = n.probe(ctx, node, settings, proof) })
	}
	probes.Wait()
	return oneIsEnough(slices.Concat(found...))
}

// oneIsEnough turns failures into warnings if not all have failed.
func oneIsEnough(findings []Finding) []Finding {
	if slices.ContainsFunc(findings, func(f Finding) bool { return f.Status != Failed }) {
		for i, f := range findings {
			if f.Status == Failed {
				findings[i].Status, findings[i].Detail = Warning, f.Detail+"; another node answers"
			}
		}
	}
	return findings
}

// probe connects to one node.
func (n *network) probe(ctx context.Context, node controlapi.TunnelEndpoint, settings *tls.Config, proof string) []Finding {
	agentID := "doctor"
	if n.id != nil {
		agentID = n.id.AgentID
	}
	way, err := tunnel.Probe(ctx, tunnel.Config{
		ServerAddress: node.Address, ServerName: node.ServerName, AgentID: agentID,
		Proxy: n.proxies, Log: zerolog.Nop(),
		TLS:       func(context.Context) (*tls.Config, error) { return settings, nil },
		Websocket: n.Config.ControlPlaneURL, WebsocketTLS: n.websocketTLS,
		Fallback: tunnel.Fallback{HeadStart: n.Timeout / 3},
	})
	switch open := "let outbound TCP to " + node.Address + " through the firewall"; {
	case err != nil:
		return failure(err, open)
	case way == tunnel.Websocket:
		return warning(node.Address+" is not reached: the tunnel goes over a websocket on the control plane's HTTPS port, which is slower", open)
	}
	return ok(node.Address + " answers" + proof)
}

// websocketTLS returns the TLS configuration for the HTTPS API, as the agent has it.
func (n *network) websocketTLS(context.Context) (*tls.Config, error) {
	extra, err := n.Config.CAPool()
	if err != nil || n.id == nil {
		return &tls.Config{MinVersion: tls.VersionTLS13}, err
	}
	cfg := n.id.ControlPlaneTLS(extra)
	cfg.Time = n.Now
	return cfg, nil
}

// asks are the protocols offered without an identity: only agents that have one hold the CA.
var asks = []string{tunnel.ALPN, tunnel.SendCA}

// tunnelTLS returns a configuration that verifies as much as possible: both ends with an identity,
// and the server alone with a token that names the CA.
func (n *network) tunnelTLS() (cfg *tls.Config, proof string, err error) {
	if n.id != nil {
		cfg = n.id.TLS()
		cfg.Time = n.Now
		if n.Now().After(n.id.NotAfter()) {
			cfg.Certificates = nil // it will have a new one
			return cfg, " and is the control plane's", nil
		}
		return cfg, " and accepts the agent's certificate", nil
	}
	token, err := controlapi.ParseToken(n.Config.Token)
	if err != nil {
		return nil, "", err
	}
	if token.Fingerprint == "" {
		// The CA comes with the identity, so there is none to verify with yet. Nothing is sent to
		// the server, and it is not trusted.
		return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: asks}, "; whether it is the control plane's is known after registration", nil //nolint:gosec // see above
	}
	trust := controlapi.Trust{Fingerprint: token.Fingerprint, Now: n.Now}
	if cfg, err = trust.TLSConfig("https://" + n.endpoint.ServerName); err != nil {
		return nil, "", err
	}
	cfg.NextProtos = asks
	return cfg, " and is the control plane's", nil
}
