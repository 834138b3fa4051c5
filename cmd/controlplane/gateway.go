package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newGateway(a *app) *cobra.Command {
	return group("gateway", "Manage the hosts and the CA of the gateway", newGatewayGrant(a), newGatewayTake(a), newGatewayGrants(a), newGatewayCA(a))
}

// gatewayFlags are serve's for the gateway: docs/gateway.md.
type gatewayFlags struct {
	cfg     controlplane.GatewayConfig
	caRoots string
}

func (g *gatewayFlags) add(f *pflag.FlagSet) {
	f.StringVar(&g.cfg.Domain, "gateway-domain", "", "domain of public Apps, for example apps.example.com; turns the gateway on; *.DOMAIN must lead to it")
	f.StringVar(&g.cfg.HTTPSListen, "gateway-https", controlplane.DefaultGatewayHTTPS, "listen address of the gateway for HTTPS")
	f.StringVar(&g.cfg.HTTPListen, "gateway-http", controlplane.DefaultGatewayHTTP, "listen address of the gateway for HTTP, which is redirected; empty for none")
	f.IntVar(&g.cfg.HTTPSPort, "gateway-https-port", 0, "port at which visitors reach --gateway-https, if another one")
	f.StringVar(&g.cfg.CA, "gateway-ca", controlplane.DefaultGatewayCA, "directory of the ACME CA, or \"internal\" for a CA of the gateway's own")
	f.StringVar(&g.caRoots, "gateway-ca-roots", "", "PEM file with the CAs that verify the ACME CA itself (default: the machine's)")
	f.StringVar(&g.cfg.Email, "gateway-email", "", "contact of the account at the ACME CA")
	f.StringVar(&g.cfg.CertFile, "gateway-certificate-file", "", "PEM file with a certificate of your own, such as a wildcard for --gateway-domain; read again when it changes")
	f.StringVar(&g.cfg.KeyFile, "gateway-key-file", "", "PEM file with the key of --gateway-certificate-file")
	f.StringSliceVar(&g.cfg.Resolvers, "gateway-resolver", nil, "host:port of a DNS server that is asked for proofs of hosts; may be repeated (default: the machine's)")
	f.DurationVar(&g.cfg.HSTS, "gateway-hsts", 0, "time for which browsers are asked to use HTTPS alone; 0 does not ask")
	f.BoolVar(&g.cfg.AccessLog, "gateway-access-log", false, "log each public request")
}

func (g *gatewayFlags) apply(cfg *controlplane.Config) error {
	cfg.Gateway = g.cfg
	if g.cfg.Domain == "" {
		cfg.Gateway = controlplane.GatewayConfig{CertFile: g.cfg.CertFile, KeyFile: g.cfg.KeyFile}
	}
	if g.caRoots == "" {
		return nil
	}
	text, err := os.ReadFile(g.caRoots)
	if err != nil {
		return fmt.Errorf("--gateway-ca-roots: %w", err)
	}
	cfg.Gateway.CARoots = x509.NewCertPool()
	if !cfg.Gateway.CARoots.AppendCertsFromPEM(text) {
		return fmt.Errorf("--gateway-ca-roots: %s holds no certificate in PEM", g.caRoots)
	}
	return nil
}

func newGatewayGrant(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "grant HOST AGENT",
		Short:   "Let an agent serve a public host without a proof in DNS",
		Long:    "Let an agent serve a public host without a proof in DNS. The host is taken from any other agent.",
		Example: "  pipeops-controlplane gateway grant www.example.com shop",
		Args:    exactArgs("HOST", "AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				g, err := admin.GrantHost(ctx, args[0], args[1])
				if err == nil {
					a.say("%s is granted to agent %s", g.Host, args[1])
				}
				return err
			})
		},
	}
}

func newGatewayTake(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "take HOST",
		Short:   "Take back a host that was granted",
		Long:    "Take back a host that was granted. An agent with a proof in DNS goes on serving it.",
		Example: "  pipeops-controlplane gateway take www.example.com",
		Args:    exactArgs("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				err := admin.TakeHost(ctx, args[0])
				if err == nil {
					a.say("%s is taken back", args[0])
				}
				return err
			})
		},
	}
}

func newGatewayGrants(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "grants",
		Short:   "List the hosts that were granted to agents",
		Example: "  pipeops-controlplane gateway grants",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				grants, err := admin.HostGrants(ctx)
				if err != nil || a.none(out, len(grants), "no host was granted; `pipeops-controlplane gateway grant HOST AGENT` does so") {
					return err
				}
				return out.Write(a.out, grants, func(w io.Writer) {
					cli.Row(w, "HOST", "AGENT", "SINCE")
					for _, g := range grants {
						cli.Row(w, g.Host, g.AgentID, cli.Time(g.GrantedAt))
					}
				})
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func newGatewayCA(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "ca",
		Short:   "Print the certificate of the gateway's own CA",
		Long:    "Print the certificate of the gateway's own CA in PEM. Visitors need it where serve has --gateway-ca internal.",
		Example: "  pipeops-controlplane gateway ca > gateway-ca.pem",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				text, err := admin.GatewayCA(ctx)
				if err != nil {
					return err
				}
				return cli.Raw(a.out, text)
			})
		},
	}
}
