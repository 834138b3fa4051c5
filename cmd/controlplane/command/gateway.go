package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/serve"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newGateway(a *app) *cobra.Command {
	return cli.Group("gateway", "Manage the hosts and the CA of the gateway, or serve it apart", serve.Gateway(a.program()), newGatewayKey(a), newGatewayGrant(a), newGatewayCA(a))
}

func newGatewayGrant(a *app) *cobra.Command {
	return cli.Group("grant", "Let agents serve public hosts without a proof in DNS", newGatewayGrantCreate(a), newGatewayGrantList(a), newGatewayGrantDelete(a))
}

func newGatewayGrantCreate(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "create HOST AGENT",
		Short:   "Let an agent serve a public host without a proof in DNS",
		Long:    "Let an agent serve a public host without a proof in DNS. The host is taken from any other agent.",
		Example: "  pipeops-controlplane gateway grant create www.example.com shop",
		Args:    cli.ExactArgs("HOST", "AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				g, err := operatorapi.CreateHostGrant.Do(ctx, admin, operatorapi.CreateHostGrantInput{
					Host: args[0], Body: operatorapi.CreateHostGrantBody{Agent: args[1]},
				})
				if err == nil {
					a.say("%s is granted to agent %s", g.Host, args[1])
				}
				return err
			})
		},
	}
}

func newGatewayGrantDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "delete HOST",
		Short:   "Take back a host that was granted",
		Long:    "Take back a host that was granted. An agent with a proof in DNS keeps serving it.",
		Example: "  pipeops-controlplane gateway grant delete www.example.com",
		Args:    cli.ExactArgs("HOST"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				_, err := operatorapi.DeleteHostGrant.Do(ctx, admin, operatorapi.HostInput{Host: args[0]})
				if err == nil {
					a.say("%s is taken back", args[0])
				}
				return err
			})
		},
	}
}

func newGatewayGrantList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the hosts that were granted to agents",
		Example: "  pipeops-controlplane gateway grant list",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListHostGrants.Do(ctx, admin, struct{}{})
				grants := found.Items
				if err != nil || a.none(out, len(grants), "no host was granted; `pipeops-controlplane gateway grant create HOST AGENT` does so") {
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
	out.AddList(cmd)
	return cmd
}

func newGatewayCA(a *app) *cobra.Command {
	return cli.Group("ca", "Read the gateway's own CA", newGatewayCAGet(a))
}

func newGatewayCAGet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "get",
		Short:   "Print the certificate of the gateway's own CA",
		Long:    "Print the certificate of the gateway's own CA in PEM. Visitors need it where serve has\n--gateway-ca internal.",
		Example: "  pipeops-controlplane gateway ca get > gateway-ca.pem",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.GetGatewayCA.Do(ctx, admin, struct{}{})
				if err != nil {
					return err
				}
				return cli.Raw(a.out, []byte(found.Certificate))
			})
		},
	}
}
