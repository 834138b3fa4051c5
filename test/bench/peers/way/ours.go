package way

import (
	"context"
	"crypto/tls"
	"errors"
	"strings"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/edge"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// oursRelay returns edge and tunnel server, joined as the control plane joins them.
func oursRelay(ctx context.Context, at Place) error {
	secure, err := relayTLS(at.Dir)
	if err != nil {
		return err
	}
	tunnels, err := server.New(server.Config{TLS: secure, Identify: agentOf, Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	agents, err := listen(ctx, at.Tunnel)
	if err != nil {
		return err
	}
	runners, err := listen(ctx, at.Public)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return tunnels.Serve(ctx, agents) })
	group.Go(func() error {
		return edge.New(edge.Config{Domain: domain, Handover: tunnels.Handover, Log: zerolog.Nop()}).Serve(ctx, runners)
	})
	return group.Wait()
}

func agentOf(state tls.ConnectionState) (string, error) {
	for _, uri := range state.PeerCertificates[0].URIs {
		if id, ok := strings.CutPrefix(uri.Path, "/agent/"); ok {
			return id, nil
		}
	}
	return "", errors.New("no agent's certificate")
}

// oursAgent returns the agent's tunnel, as the agent makes it.
func oursAgent(ctx context.Context, at Place) error {
	secure, err := agentTLS(at.Dir)
	if err != nil {
		return err
	}
	tun, err := tunnel.New(tunnel.Config{
		ServerAddress: at.Via, ServerName: relayName, AgentID: AgentID, Instance: "bench",
		TLS: func(context.Context) (*tls.Config, error) { return secure, nil }, Log: zerolog.Nop(),
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return tun.Run(ctx) })
	group.Go(func() error { return serve(ctx, tun.Listener(), at.Dir) })
	return group.Wait()
}
