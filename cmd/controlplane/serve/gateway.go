package serve

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/tracing"
)

// gatewayProcess is the subcommand that runs a gateway as a separate process.
type gatewayProcess struct {
	Program
	cfg      controlplane.GatewayServerConfig
	gateway  flags.Gateway
	limits   flags.Limits
	keyFile  string
	logLevel string
}

// Gateway returns the command that runs a gateway as a separate process.
func Gateway(p Program) *cobra.Command {
	s := &gatewayProcess{Program: p}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the public in a separate process, beside control planes",
		Long: `Serve the public in a separate process, beside control planes, until stopped.

The control planes share a PostgreSQL database, and run with --gateway-domain and --gateway-apart.
Any number of gateways serve it. A gateway needs the database and the key of gateways. It has
neither the CA nor a tunnel.

Give the other gateway flags to all gateways alike.`,
		Example: `  pipeops-controlplane gateway serve --database-file /etc/pipeops/database-url \
    --link-key-file /etc/pipeops/link-key --gateway-domain apps.example.com`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&s.keyFile, "link-key-file", "", "file with the key of gateways; see pipeops-controlplane gateway key export")
	f.StringVar(&s.cfg.HealthListen, "health-listen", controlplane.DefaultGatewayHealth, "listen address of /healthz and /readyz, plain HTTP")
	f.StringVar(&s.cfg.MetricsListen, "metrics-listen", "", "listen address of /metrics for Prometheus, plain HTTP, for example 127.0.0.1:9090; empty for none")
	s.limits.AddConnections(f)
	s.gateway.Add(f)
	f.StringVar(&s.logLevel, "log-level", "info", "log level: debug, info, warn or error")
	return cmd
}

func (s *gatewayProcess) run(ctx context.Context) error {
	log, err := newLog(s.logLevel)
	s.cfg.Log, s.cfg.Version = log, s.Version
	var noDatabase, noKey error
	s.cfg.Database, noDatabase = s.Data.Database()
	if s.keyFile != "" {
		s.cfg.Key, noKey = castore.ReadKey(s.keyFile)
	}
	if s.Data.CAKeyFile != "" {
		noKey = errors.Join(noKey, errors.New("--ca-key-file: a gateway must not have the CA's key; give --link-key-file"))
	}
	var like controlplane.Config
	wrong := errors.Join(err, noDatabase, noKey, s.gateway.Apply(&like), s.limits.Apply(&like))
	s.cfg.Gateway, s.cfg.Limits = like.Gateway, like.Limits
	if wrong == nil {
		wrong = s.cfg.Validate()
	}
	if wrong != nil {
		return cli.Usage(fmt.Errorf("the configuration has mistakes:\n%w", wrong))
	}
	traces, err := tracing.Start(ctx, "pipeops-gateway", s.Version, os.Getenv, log)
	if err != nil {
		return cli.Usage(err)
	}
	defer traces.Stop(ctx)
	s.cfg.Tracer = traces.Provider()
	g, err := controlplane.NewGatewayServer(ctx, s.cfg)
	if err != nil {
		return err
	}
	secure, _, health := g.Addrs()
	s.say("pipeops-controlplane %s serves the public", s.Version)
	s.say("  gateway %-36s listens on %s", "*."+s.cfg.Gateway.Domain, secure)
	s.say("  probes  http://%s/readyz", health)
	return g.Run(ctx)
}
