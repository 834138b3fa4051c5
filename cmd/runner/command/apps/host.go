package apps

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// hostWait is how long a host is waited for: people create its record meanwhile.
	hostWait = 10 * time.Minute
	// routeWait is how long the control plane is waited for that is to know a new host.
	routeWait = 30 * time.Second
)

// NewHost returns the command host.
func NewHost(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("host", "Serve Apps at hosts of your own", newHostCreate(a), newHostDelete(a))
}

// hostCreate is the command host create.
type hostCreate struct {
	*cmdutil.CLI
	out  cli.Output
	wait cmdutil.Waiting
	key  runnerapi.Key
	host runnerapi.IngressHost
}

func newHostCreate(a *cmdutil.CLI) *cobra.Command {
	c := &hostCreate{CLI: a}
	cmd := &cobra.Command{
		Use:   "create [AGENT] NAME HOST",
		Short: "Serve an App at a host of your own",
		Long: `Serve an App at a host of your own, through the control plane's gateway.

The command adds HOST to the App's hosts, if it is not there yet. It prints the DNS records, of
which you create one. Then it waits until visitors get the App's response at the host: for the
route, the proof by DNS, the certificate and the first response. If you interrupt it, the gateway
continues. Run it again to see what is missing.`,
		Example: `  pipeops-runner host create shop web shop.example.com
  pipeops-runner host create shop web shop.example.com --no-wait`,
		Args:              cli.ExactArgs("AGENT", "NAME", "HOST"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if c.host, err = hostArg(args[2]); err != nil {
				return err
			}
			c.key.Name = args[1]
			return a.On(cmd.Context(), args[0], c.run)
		},
	}
	c.out.Add(cmd)
	c.wait.Add(cmd, hostWait)
	cmdutil.NamespaceFlag(cmd, &c.key.Namespace)
	return cmd
}

func (c *hostCreate) run(ctx context.Context, t *cmdutil.Target) error {
	app, err := c.add(ctx, t)
	if err != nil {
		return cmdutil.At(t, c.key.String(), err)
	}
	steps := &hostSteps{hostCreate: c, target: t}
	waited := routeWait
	if c.wait.Wanted() {
		waited = c.wait.Limit
	}
	limited, cancel := context.WithTimeout(ctx, waited)
	defer cancel()
	p := cmdutil.NewProgress(c.Err, c.Terminal)
	steps.progress = p
	app, err = cmdutil.AwaitApp(limited, t, app, p, steps.waits)
	p.End()
	switch {
	case ctx.Err() != nil:
		c.Say("stopped waiting; the gateway continues. See what is missing with:\n  %s", c.again(t))
		return &cmdutil.ExitError{Err: ctx.Err(), Code: cmdutil.ExitInterrupted, Told: true}
	case err != nil && limited.Err() == nil:
		return cmdutil.At(t, c.key.String(), err)
	}
	return c.end(t, app, steps.route, waited)
}

// add gives the App the host, unless it has it, and returns the App.
func (c *hostCreate) add(ctx context.Context, t *cmdutil.Target) (runnerapi.App, error) {
	app, err := t.Apps().Get(ctx, c.key)
	if err != nil {
		return app, err
	}
	ingress := runnerapi.Ingress{}
	if app.Spec.Ingress != nil {
		ingress = *app.Spec.Ingress
	}
	if slices.ContainsFunc(ingress.Hosts, func(h runnerapi.IngressHost) bool { return h.Host == c.host.Host && h.Path == c.path() }) {
		return app, nil
	}
	ingress.Hosts = append(slices.Clone(ingress.Hosts), c.host)
	app.Spec.Ingress = &ingress
	return t.Apps().Deploy(ctx, c.key, app.Spec, runnerapi.WriteOptions{Generation: app.Generation, IdempotencyKey: uuid.NewString()})
}

// end prints the result, and returns an error for a host that is not served yet.
func (c *hostCreate) end(t *cmdutil.Target, app runnerapi.App, route *runnerapi.Route, waited time.Duration) error {
	if route == nil {
		return &cmdutil.ExitError{
			Err: fmt.Errorf("%s: %s: the agent lists no route to %s after %s", t, c.key, c.host.Host, waited), Code: cmdutil.ExitTimeout,
			Fix: fmt.Sprintf("see why with: pipeops-runner status %s %s -n %s", t.Agent.Name, c.key.Name, c.key.Namespace),
		}
	}
	at := c.servedAt(app)
	err := c.out.Write(c.Out, *route, func(w io.Writer) {
		if at != "" {
			cli.Say(w, "public at %s", cli.Printable(at))
		} else if !c.wait.Wanted() {
			recordTable(w, *route)
		}
	})
	if err != nil || at != "" {
		return err
	}
	missing := &cmdutil.ExitError{
		Err: fmt.Errorf("%s: %s: %s is not served after %s: %s", t, c.key, c.host.Host, waited, stepsText(route)), Code: cmdutil.ExitTimeout,
		Fix: "then see again: " + c.again(t),
	}
	if why := cmp.Or(route.Reason, lacking(app)); why != "" {
		missing.Fix = cli.Printable(why) + "; " + missing.Fix
	}
	switch {
	case c.wait.Wanted():
		return missing
	case len(route.Records) == 0 && route.Proof == "":
		missing.Err, missing.Code = errors.New("no DNS record proves "+c.host.Host), cmdutil.ExitFailure
		return missing
	}
	return nil
}

// path is the host's, or all of it.
func (c *hostCreate) path() string { return cmp.Or(c.host.Path, "/") }

// again returns the command that goes on waiting.
func (c *hostCreate) again(t *cmdutil.Target) string {
	return fmt.Sprintf("pipeops-runner host create %s %s %s%s -n %s", t.Agent.Name, c.key.Name, c.host.Host, c.host.Path, c.key.Namespace)
}

// servedAt returns the URL at which visitors reach the App by the host; empty while they do not.
func (c *hostCreate) servedAt(app runnerapi.App) string {
	for _, public := range app.Status.PublicURLs {
		if at, err := url.Parse(public); err == nil && at.Host == c.host.Host {
			return public
		}
	}
	return ""
}

// lacking returns why the App's hosts are not served; empty if they are.
func lacking(app runnerapi.App) string {
	for _, condition := range app.Status.Conditions {
		if condition.Type == runnerapi.ConditionIngressReady && condition.Lacks() {
			return condition.Fix
		}
	}
	return ""
}

// hostSteps follows a host on its way to the public.
type hostSteps struct {
	*hostCreate
	target   *cmdutil.Target
	progress *cmdutil.Progress
	route    *runnerapi.Route // once it is known
}

// waits returns what is waited for; empty at the end.
func (s *hostSteps) waits(ctx context.Context, app runnerapi.App) (string, error) {
	list, err := s.target.Routes().List(ctx)
	if err != nil {
		return "", err
	}
	first := s.route == nil
	for _, r := range list {
		if r.Namespace == s.key.Namespace && r.App == s.key.Name && r.Host == s.host.Host && r.Path == s.path() {
			s.route = &r
		}
	}
	served := s.servedAt(app) != ""
	switch {
	case s.route == nil:
		return s.host.Host + ": waits for the route", nil
	case s.route.Service == "" && len(s.route.Filters) == 0: // waiting changes nothing
		return "", &cmdutil.ExitError{
			Err: fmt.Errorf("%s is not served: %s", s.host.Host, cli.Printable(s.route.Reason)), Code: cmdutil.ExitFailure,
			Fix: fmt.Sprintf("to take the host back: pipeops-runner host delete %s %s %s%s -n %s", s.target.Agent.Name, s.key.Name, s.host.Host, s.host.Path, s.key.Namespace),
		}
	case served || !s.wait.Wanted():
		return "", nil
	case first && s.route.Proof == "" && len(s.route.Records) > 0:
		s.progress.End()
		s.Say("create one of these DNS records:")
		if err := (&cli.Output{Format: "table"}).Write(s.Err, nil, func(w io.Writer) { recordTable(w, *s.route) }); err != nil {
			return "", err
		}
	}
	return s.host.Host + ": " + stepsText(s.route), nil
}

func recordTable(w io.Writer, r runnerapi.Route) {
	cli.Row(w, "NAME", "TYPE", "VALUE")
	for _, record := range r.Records {
		cli.Row(w, record.Name, record.Type, record.Value)
	}
}

// stepsText returns which steps are done, and what comes next.
func stepsText(r *runnerapi.Route) string {
	switch {
	case r.Proof == "" && len(r.Records) == 0:
		return "route known; " + cli.Printable(r.Reason)
	case r.Proof == "":
		return "route known; waits for the DNS record"
	case r.Certificate != runnerapi.CertificateReady:
		return fmt.Sprintf("route known, proof %s; waits for the certificate (%s)", r.Proof, cmp.Or(r.Certificate, "none"))
	}
	return fmt.Sprintf("route known, proof %s, certificate ready; waits for the first response", r.Proof)
}
