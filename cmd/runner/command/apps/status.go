package apps

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/crontime"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewStatus returns the command status.
func NewStatus(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var namespace string
	var watch bool
	var fleet cmdutil.Fleet
	wait := &cmdutil.Waiting{}
	cmd := &cobra.Command{
		Use:   "status [AGENT] NAME",
		Short: "Show the state of an App, and what is wrong with it",
		Long: `Show the state of an App, and what is wrong with it.

With --wait, the command waits until the newest rollout ends, and exits as deploy does. With
--watch, it prints each change until interrupted, or until the end that --wait waits for.`,
		Example:           "  pipeops-runner status shop web\n  pipeops-runner status shop web --wait=5m\n  pipeops-runner status shop web --watch --wait=5m",
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return fleet.Each(cmd.Context(), a, args[0], &out, func(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target) error {
				if watch {
					return watchApp(ctx, a, t, key, wait, &out)
				}
				app, err := t.Apps().Get(ctx, key)
				if err != nil {
					return cmdutil.At(t, key.String(), err)
				}
				if wait.Wanted() {
					return a.Outcome(ctx, t, app, wait, &out)
				}
				a.State(app.State() + " " + app.Ready())
				a.SayWarnings(app.Spec)
				return out.Write(a.Out, app, func(w io.Writer) { statusTable(w, app) })
			})
		},
	}
	out.Add(cmd)
	cmdutil.NamespaceFlag(cmd, &namespace)
	wait.Add(cmd, 0)
	fleet.Add(cmd)
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print each change, also across restarts of the agent")
	return cmd
}

func statusTable(w io.Writer, app runnerapi.App) {
	cli.Row(w, "App:", runnerapi.Key{Namespace: app.Namespace, Name: app.Name})
	cli.Row(w, "Type:", cmp.Or(app.Spec.Type, runnerapi.TypeDeployment))
	cli.Row(w, "Phase:", app.State())
	cli.Row(w, "Image:", app.Spec.Image)
	if app.Status.Revision > 0 {
		cli.Row(w, "Revision:", app.Status.Revision)
	}
	if u := app.Status.Undone; u != nil {
		cli.Row(w, "Undone:", cmdutil.UndoneText(u))
	}
	if app.Spec.Type.Runs() {
		runRows(w, app)
	} else {
		cli.Row(w, "Ready:", app.Ready())
		cli.Row(w, "Updated:", app.Status.UpdatedReplicas)
		cli.Row(w, "Restarts:", app.Status.Restarts)
	}
	if bounds := app.Spec.Autoscaling; bounds != nil {
		cli.Row(w, "Autoscaling:", fmt.Sprintf("%d to %d pods", bounds.Min, bounds.Max))
	}
	for _, url := range app.Status.URLs {
		cli.Row(w, "In the cluster:", url)
	}
	for _, url := range app.Status.PublicURLs {
		cli.Row(w, "Public:", url)
	}
	for _, c := range app.Status.Conditions {
		if c.Lacks() {
			cli.Row(w, string(c.Type)+":", cmdutil.ConditionText(c))
		}
	}
	if since := app.Status.LastTransition; since != nil {
		cli.Row(w, "Since:", cli.Time(*since)+" ("+cli.Ago(*since)+")")
	}
	if d := app.Status.Drift; d != nil {
		cli.Row(w, "Drift:", driftText(d))
	}
	cmdutil.WaitingRows(w, app.Status.WaitingFor, app.Status.LastLines)
	cmdutil.DiagnosisRows(w, app.Status.Diagnosis)
}

// driftText describes the foreign changes to the App's objects.
func driftText(d *runnerapi.Drift) string {
	return fmt.Sprintf("put back %d times, last %s: %s", d.Corrections, cli.Ago(d.LastAt), d.What())
}

// runRows prints when a Job or CronJob runs and how its runs ended.
func runRows(w io.Writer, app runnerapi.App) {
	if s := app.Spec.Schedule; s != nil {
		cli.Row(w, "Schedule:", s.Cron+", "+cmp.Or(s.TimeZone, "UTC"))
		next := cli.Until(crontime.Next(app.Spec, time.Now()))
		if s.Suspended {
			next = "suspended"
		}
		cli.Row(w, "Next run:", next)
	}
	for _, r := range app.Status.Runs {
		cli.Row(w, "Run:", fmt.Sprintf("%s %s, %s", r.Name, r.Outcome, cli.Ago(r.StartedAt)))
	}
}
