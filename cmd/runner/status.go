package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newStatus(a *app) *cobra.Command {
	var out output
	var namespace string
	wait := &waiting{}
	cmd := &cobra.Command{
		Use:   "status AGENT NAME",
		Short: "Show how an App is, and what is wrong when something is",
		Long: `Show how an App is, and what is wrong when something is. With --wait it waits until the
newest rollout has come to its end, and exits as deploy does.`,
		Example:           "  pipeops-runner status shop web\n  pipeops-runner status shop web --wait=5m",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				app, err := t.Get(ctx, key)
				if err != nil {
					return at(t, key.String(), err)
				}
				if wait.limit > 0 && !wait.noWait {
					return a.outcome(ctx, t, app, wait, &out)
				}
				return out.write(a.out, app, func(w io.Writer) { statusTable(w, app) })
			})
		},
	}
	out.add(cmd)
	namespaceFlag(cmd, &namespace)
	wait.add(cmd, 0)
	return cmd
}

func statusTable(w io.Writer, app runnerapi.App) {
	row(w, "App:", runnerapi.Key{Namespace: app.Namespace, Name: app.Name})
	row(w, "Type:", cmp.Or(app.Spec.Type, runnerapi.TypeDeployment))
	row(w, "Phase:", app.Status.Phase)
	row(w, "Image:", app.Spec.Image)
	if app.Status.Revision > 0 {
		row(w, "Revision:", app.Status.Revision)
	}
	if u := app.Status.Undone; u != nil {
		row(w, "Undone:", undoneText(u))
	}
	if app.Spec.Type.Runs() {
		runRows(w, app)
	} else {
		row(w, "Ready:", ready(app))
		row(w, "Updated:", app.Status.UpdatedReplicas)
		row(w, "Restarts:", app.Status.Restarts)
	}
	if bounds := app.Spec.Autoscaling; bounds != nil {
		row(w, "Autoscaling:", fmt.Sprintf("%d to %d pods", bounds.Min, bounds.Max))
	}
	for _, url := range app.Status.URLs {
		row(w, "In the cluster:", url)
	}
	for _, url := range app.Status.PublicURLs {
		row(w, "Public:", url)
	}
	if since := app.Status.LastTransition; since != nil {
		row(w, "Since:", since.Local().Format(time.DateTime)+" ("+ago(*since)+")")
	}
	if d := app.Status.Drift; d != nil {
		row(w, "Drift:", driftText(d))
	}
	d := app.Status.Diagnosis
	if d == nil {
		return
	}
	row(w, "Cause:", d.Cause)
	row(w, "Message:", d.Message)
	row(w, "Fix:", d.Fix)
	row(w, "Object:", d.Object)
	if d.ExitCode != nil {
		row(w, "Exit code:", *d.ExitCode)
	}
	for _, line := range d.LastLines {
		row(w, "Last lines:", line)
	}
}

// driftText is what somebody else did to the App's objects.
func driftText(d *runnerapi.Drift) string {
	return fmt.Sprintf("put back %d times, last %s: %s", d.Corrections, ago(d.LastAt), d.What())
}

// runRows are when a Job or CronJob runs and how its runs ended.
func runRows(w io.Writer, app runnerapi.App) {
	if s := app.Spec.Schedule; s != nil {
		when := s.Cron
		if s.Suspended {
			when += " (suspended)"
		}
		row(w, "Schedule:", when)
	}
	for _, r := range app.Status.Runs {
		row(w, "Run:", fmt.Sprintf("%s %s, %s", r.Name, r.Outcome, ago(r.StartedAt)))
	}
}
