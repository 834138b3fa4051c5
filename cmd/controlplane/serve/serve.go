// Package serve has the commands that run until they are stopped: a control plane, and a gateway
// that is a separate process.
package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/tracing"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// Program is what these commands share with the others.
type Program struct {
	Version string
	Data    *flags.Data
	Err     io.Writer // for people
}

func (p Program) say(format string, args ...any) { cli.Say(p.Err, format, args...) }

// controlPlane is the subcommand that runs the control plane.
type controlPlane struct {
	Program
	cfg      controlplane.Config
	broker   flags.Broker
	limits   flags.Limits
	gateway  flags.Gateway
	hooks    flags.WebhookCA
	openID   flags.OpenID
	logLevel string
}

// ControlPlane returns the command that runs a control plane.
func ControlPlane(p Program) *cobra.Command {
	s := &controlPlane{Program: p}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve agents and Runners",
		Long: `Serve agents and Runners until stopped.

The first start creates the data directory with a certificate authority (CA) and a SQLite
database. Keep the directory, and back it up.

With --database, the registry is in PostgreSQL, and the directory holds only the CA. With
--ca-key-file, the CA is in PostgreSQL as well. Several control planes can then serve it side by
side. Each has its own directory, which you do not need to keep.

Without a broker, everything works except announcements. The control plane keeps them until
there is a broker.`,
		Example: `  # On one machine, to try it out:
  pipeops-controlplane serve --data-dir ./data

  # Reachable from other machines:
  pipeops-controlplane serve --advertise-api https://control.example.com:8443 \
    --advertise-tunnel control.example.com:7000 --advertise-edge control.example.com:8444 \
    --broker-url-file /etc/pipeops/broker-url

  # With a gateway, so that the public reaches Apps:
  pipeops-controlplane serve --data-dir ./data --gateway-domain apps.example.com

  # One of several control planes on one PostgreSQL:
  pipeops-controlplane serve --database-file /etc/pipeops/database-url --ca-key-file /etc/pipeops/ca-key \
    --advertise-peer 10.0.0.4:8445`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&s.cfg.APIListen, "api-listen", controlplane.DefaultAPIListen, "listen address of the HTTPS API for agents and Runners")
	f.StringVar(&s.cfg.TunnelListen, "tunnel-listen", controlplane.DefaultTunnelListen, "listen address for the agents' tunnels (FRP)")
	f.StringVar(&s.cfg.EdgeListen, "edge-listen", controlplane.DefaultEdgeListen, "listen address of the edge, at which Runners reach agents")
	f.StringVar(&s.cfg.PeerListen, "peer-listen", controlplane.DefaultPeerListen, "listen address for other control planes; used only with --ca-key-file")
	f.StringVar(&s.cfg.AdvertisePeer, "advertise-peer", "", "host:port at which other control planes reach --peer-listen (default: the listen address)")
	f.StringVar(&s.cfg.AdvertiseAPI, "advertise-api", "", "URL at which agents and Runners reach the API (default: the listen address)")
	f.StringVar(&s.cfg.AdvertiseTunnel, "advertise-tunnel", "", "host:port at which agents reach the tunnel listener")
	f.StringVar(&s.cfg.AdvertiseEdge, "advertise-edge", "", "host:port at which Runners reach the edge")
	f.StringVar(&s.cfg.AgentsDomain, "agents-domain", datadir.DefaultAgentsDomain, "domain of the agents' names; needs no DNS")
	f.StringVar(&s.cfg.TrustDomain, "trust-domain", datadir.DefaultTrustDomain, "SPIFFE trust domain of agents and Runners")
	cli.DurationVar(f, &s.cfg.HeartbeatInterval, "heartbeat-interval", controlplane.DefaultHeartbeatInterval, "time between an agent's heartbeats; the agent is offline after three")
	cli.DurationVar(f, &s.cfg.CertificateTTL, "certificate-ttl", controlplane.DefaultCertificateTTL, "lifetime of an agent's certificate")
	f.StringVar(&s.cfg.MetricsListen, "metrics-listen", "", "listen address of /metrics for Prometheus, plain HTTP, for example 127.0.0.1:9090; empty for none")
	f.StringVar(&s.cfg.PprofListen, "pprof-listen", "", "listen address of /debug/pprof/ for developers, plain HTTP; without a host it is 127.0.0.1; empty for none")
	s.limits.Add(f)
	s.gateway.Add(f)
	s.gateway.AddServe(f)
	f.StringVar(&s.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	s.broker.Add(f)
	s.hooks.Add(f)
	s.openID.Add(f)
	return cmd
}

func (s *controlPlane) run(ctx context.Context) error {
	log, err := newLog(s.logLevel)
	s.cfg.DataDir, s.cfg.Log, s.cfg.Version = s.Data.Dir, log, s.Version
	database, wrong := s.Data.Database()
	if wrong == nil {
		s.cfg.Database = database
	}
	var noKey error
	s.cfg.CAKey, noKey = s.Data.CAKey()
	var unread error
	s.cfg.WebhookTLS, unread = s.hooks.TLS()
	var noOpenID error
	s.cfg.OpenID, noOpenID = s.openID.Config()
	if err := errors.Join(err, wrong, noKey, unread, noOpenID, s.broker.Apply(&s.cfg), s.limits.Apply(&s.cfg), s.gateway.Apply(&s.cfg), s.cfg.Validate()); err != nil {
		return cli.Usage(fmt.Errorf("the configuration has mistakes:\n%w", err))
	}
	traces, err := tracing.Start(ctx, "pipeops-controlplane", s.Version, os.Getenv, log)
	if err != nil {
		return cli.Usage(err)
	}
	defer traces.Stop(ctx)
	s.cfg.Tracer = traces.Provider()
	cp, err := controlplane.New(ctx, s.cfg)
	if err != nil {
		return err
	}
	s.greet(cp)
	return cp.Run(ctx)
}

// greet prints the listening addresses and what to do next.
func (s *controlPlane) greet(cp *controlplane.ControlPlane) {
	at, listens := cp.Advertised(), cp.Addrs()
	s.say("pipeops-controlplane %s serves from %s", s.Version, s.Data.Dir)
	s.say("  API     %-36s listens on %s", at.API, listens.API)
	s.say("  tunnel  %-36s listens on %s", at.Tunnel, listens.Tunnel)
	s.say("  edge    %-36s listens on %s", at.Edge, listens.Edge)
	if at, _ := cp.ObservedAt(); at != nil {
		s.say("  metrics http://%s/metrics", at)
	}
	if listens.HTTPS != nil {
		s.say("  gateway %-36s listens on %s", "*."+s.cfg.Gateway.Domain, listens.HTTPS)
	}
	if s.cfg.Database.Given() {
		s.say("  database %s", s.cfg.Database)
	}
	if listens.Peer != nil {
		s.say("  peers   %-36s listens on %s", cp.AdvertisedPeer(), listens.Peer)
	}
	if len(s.cfg.BrokerURLs) == 0 {
		s.say("  broker  none: announcements are kept until there is one (--broker-url-file)")
	}
	for _, url := range s.cfg.BrokerURLs {
		s.say("  broker  %s", rabbitmq.Redact(url))
	}
	s.say("Next: pipeops-controlplane token create --data-dir %s", s.Data.Dir)
}
