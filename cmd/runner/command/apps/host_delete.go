package apps

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/appform"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newHostDelete(a *cmdutil.CLI) *cobra.Command {
	w := &cmdutil.Rollout{CLI: a}
	cmd := &cobra.Command{
		Use:   "delete [AGENT] NAME HOST",
		Short: "No longer serve an App at a host of your own",
		Long: `Remove HOST from the App's hosts. The gateway no longer serves the App there. With a path, as in
shop.example.com/api, the command removes that path alone.

Delete the host's DNS record afterwards: it leads to this agent, which any of its Apps may use.`,
		Example:           "  pipeops-runner host delete shop web shop.example.com",
		Args:              cli.ExactArgs("AGENT", "NAME", "HOST"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			host, err := hostArg(args[2])
			if err != nil {
				return err
			}
			return w.Run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				app, err := t.Apps().Get(ctx, key)
				if err != nil {
					return app, err
				}
				if app.Spec.Ingress, err = withoutHost(app.Spec.Ingress, host); err != nil {
					return app, err
				}
				opts.Generation = app.Generation
				return t.Apps().Deploy(ctx, key, app.Spec, opts)
			})
		},
	}
	w.Add(cmd)
	return cmd
}

// hostArg returns the host that an argument names, with its path if it has one.
func hostArg(arg string) (runnerapi.IngressHost, error) {
	if strings.Contains(arg, "://") {
		return runnerapi.IngressHost{}, cli.Usage(fmt.Errorf("HOST has a scheme: give it without, such as shop.example.com instead of %s", arg))
	}
	return appform.ParseHost(arg), nil
}

// withoutHost returns an ingress without a host, or without one path of it; nil if nothing is left
// to serve.
func withoutHost(in *runnerapi.Ingress, without runnerapi.IngressHost) (*runnerapi.Ingress, error) {
	if in == nil {
		in = &runnerapi.Ingress{}
	}
	out := *in
	out.Hosts = slices.DeleteFunc(slices.Clone(in.Hosts), func(h runnerapi.IngressHost) bool {
		return h.Host == without.Host && (without.Path == "" || cmp.Or(h.Path, "/") == without.Path)
	})
	switch {
	case len(out.Hosts) == len(in.Hosts):
		return nil, cli.Usage(fmt.Errorf("%s%s is not a host of the App: %s", without.Host, without.Path, hostsText(in.Hosts)))
	case len(out.Hosts) == 0 && !out.Public && len(out.Ports) == 0:
		return nil, nil //nolint:nilnil // no ingress
	}
	return &out, nil
}

func hostsText(hosts []runnerapi.IngressHost) string {
	if len(hosts) == 0 {
		return "it has none"
	}
	all := make([]string, len(hosts))
	for i, h := range hosts {
		all[i] = h.Host + strings.TrimSuffix(h.Path, "/")
	}
	return "it has " + strings.Join(all, ", ")
}
