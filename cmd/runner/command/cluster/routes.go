package cluster

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewRoutes returns the command routes.
func NewRoutes(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "routes [AGENT]",
		Short: "List the public hosts of what runs in an agent's cluster",
		Long: `List the hosts and paths at which the public reaches what the agent manages, through the control
plane's gateway. Apps have them by --public, --host, --public-tcp or --public-udp, charts and
manifests by their Ingresses and HTTPRoutes. PATH has the conditions of an HTTPRoute, too.

STATE is serving, or suspended for the REASON. CERTIFICATE is that of the gateway for the host.`,
		Example:           "  pipeops-runner routes shop\n  pipeops-runner routes shop -o json",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				list, err := t.Routes().List(ctx)
				if err != nil {
					return cmdutil.At(t, "", err)
				}
				if len(list) == 0 && out.Table() {
					a.Say("there are none; deploy --public makes an App public")
				}
				for _, r := range list {
					for _, w := range r.Warnings {
						a.Say("%s%s: %s", r.Host, r.Path, w)
					}
				}
				return out.Write(a.Out, runnerapi.RouteList{Items: list}, func(w io.Writer) { routeTable(w, list) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func routeTable(w io.Writer, routes []runnerapi.Route) {
	cli.Row(w, "HOST", "PATH", "BACKEND", "STATE", "MODE", "CERTIFICATE", "REASON")
	for _, r := range routes {
		host, path := r.Host, strings.TrimSuffix(r.Path+" "+r.Conditions, " ")
		if r.Protocol != "" {
			host, path = r.URL, ""
		}
		cli.Row(w, host, path, backendText(r), string(r.State), string(r.Mode), cmp.Or(string(r.Certificate), "none"), r.Reason)
	}
}

// backendText returns where a route leads. A route that the gateway cannot carry, or that
// redirects, leads nowhere.
func backendText(r runnerapi.Route) string {
	switch {
	case r.Port == 0 && slices.Contains(r.Filters, "RequestRedirect"):
		return r.Namespace + " (redirect)"
	case r.Port == 0:
		return r.Namespace
	}
	if len(r.Backends) > 0 {
		shares := make([]string, len(r.Backends))
		for i, b := range r.Backends {
			shares[i] = fmt.Sprintf("%s:%d (%d)", b.Service, b.Port, b.Weight)
		}
		return r.Namespace + "/" + strings.Join(shares, ", ")
	}
	return fmt.Sprintf("%s/%s:%d", r.Namespace, cmp.Or(r.App, r.Service), r.Port)
}
