package way

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func oursRelay(ctx context.Context, at Place) {
	_, serve := edgeAndTunnel(ctx, at, at.Public)
	together(serve...)
}

// edgeAndTunnel returns edge and tunnel server, joined as the control plane joins them. Runners
// connect to their address.
func edgeAndTunnel(ctx context.Context, at Place, runners string) (*server.Server, []func() error) {
	tunnels := run.Must(server.New(server.Config{TLS: relayTLS(at.Dir), Identify: agentOf, Log: zerolog.Nop()}))
	front := edge.New(edge.Config{Domain: domain, Handover: tunnels.Handover, Log: zerolog.Nop()})
	return tunnels, []func() error{
		func() error { return tunnels.Serve(ctx, listen(ctx, at.Tunnel)) },
		func() error { return front.Serve(ctx, listen(ctx, runners)) },
	}
}

func agentOf(state tls.ConnectionState) (string, error) {
	for _, uri := range state.PeerCertificates[0].URIs {
		if id, ok := strings.CutPrefix(uri.Path, "/agent/"); ok {
			return id, nil
		}
	}
	return "", errors.New("no agent's certificate")
}

func oursAgent(ctx context.Context, at Place) {
	_, serve := agentEnd(ctx, at, false)
	together(serve...)
}

// agentEnd returns the agent's tunnel, as the agent makes it.
func agentEnd(ctx context.Context, at Place, public bool) (*tunnel.Tunnel, []func() error) {
	secure := agentTLS(at.Dir)
	tun := run.Must(tunnel.New(tunnel.Config{
		ServerAddress: at.Via, ServerName: relayName, AgentID: AgentID, Instance: "bench", TakePublic: public,
		TLS: func(context.Context) (*tls.Config, error) { return secure, nil }, Log: zerolog.Nop(),
	}))
	return tun, []func() error{
		func() error { return tun.Run(ctx) },
		func() error { return serve(tun.Listener(), at.Dir) },
	}
}
