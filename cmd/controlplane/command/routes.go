package command

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/routes"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func newRoutes(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "routes [AGENT]",
		Short: "List the public hosts of agents' Apps",
		Long: `List the public hosts of agents' Apps, which the gateway serves. Agents report them unless
enableIngressSync is off.

PROOF is what lets the agent serve the host. It is given (below the gateway's domain), cname or txt
(a DNS record), or grant (of the operator). Without one, REASON names the record that is missing.

MODE is how requests come to the cluster: through the agent's tunnel, or direct to its load
balancer. -o json has the load balancer's address (endpoint), and why it is not used (modeReason).

CONFLICT names another agent that serves the host or the port, or the App of the same agent that had
the path before.`,
		Example: "  pipeops-controlplane routes\n  pipeops-controlplane routes shop -o json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return cli.ExactArgs("AGENT")(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				agent := ""
				if len(args) > 0 {
					agent = args[0]
				}
				routes, err := operatorapi.ListRoutes.Do(ctx, admin, operatorapi.RoutesInput{Agent: agent})
				if err != nil {
					return err
				}
				return a.printRoutes(routes, &out)
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func (a *app) printRoutes(routes routes.List, out *cli.Output) error {
	if len(routes.Items) == 0 && out.Table() {
		a.say("no routes; agents report them if the control plane has a gateway (--gateway-domain), and Apps have an ingress")
		return nil
	}
	err := out.Write(a.out, routes, func(w io.Writer) { routeTable(w, routes.Items) })
	if err == nil && routes.Omitted > 0 && out.Table() {
		a.say("and %d more, beyond the limit of a report", routes.Omitted)
	}
	return err
}

func routeTable(w io.Writer, routes []routes.Route) {
	cli.Row(w, "URL", "TYPE", "AGENT", "NAMESPACE", "APP", "PORT", "READY", "PROOF", "MODE", "SINCE", "CONFLICT", "REASON")
	for _, r := range routes {
		ready := "no"
		switch {
		case !r.Served:
		case r.Ready && r.Agent.State != announce.StateOnline:
			ready = "unknown" // no source reports it now
		case r.Ready:
			ready = "yes"
		}
		cli.Row(w, r.URL, cmp.Or(r.Protocol, r.PathType), r.Agent.Name, r.Namespace, cmp.Or(r.App, r.Service), r.Port, ready, cmp.Or(r.Proof, "none"), cmp.Or(r.Mode, "none"), cli.Ago(r.Since), conflict(r), r.Reason)
	}
}

// conflict describes the earlier holder of the host or path.
func conflict(r routes.Route) string {
	switch {
	case r.HeldBy == nil:
		return ""
	case r.HeldBy.ID != r.Agent.ID && r.HeldBy.App != "":
		return "held by App " + r.HeldBy.Namespace + "/" + r.HeldBy.App + " of agent " + r.HeldBy.Name
	case r.HeldBy.ID != r.Agent.ID:
		return "held by agent " + r.HeldBy.Name
	}
	return "held by App " + r.HeldBy.Namespace + "/" + r.HeldBy.App
}
