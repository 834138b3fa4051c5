package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newStatus(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	wait := &waiting{}
	cmd := &cobra.Command{
		Use:   "status AGENT NAME",
		Short: "Show the state of an App, and what is wrong with it",
		Long: `Show the state of an App, and what is wrong with it.

With --wait, the command waits until the newest rollout ends, and exits as deploy does.`,
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
				if wait.wanted() {
					return a.outcome(ctx, t, app, wait, &out)
				}
				return out.Write(a.out, app, func(w io.Writer) { statusTable(w, app) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	wait.add(cmd, 0)
	return cmd
}

func statusTable(w io.Writer, app runnerapi.App) {
	cli.Row(w, "App:", runnerapi.Key{Namespace: app.Namespace, Name: app.Name})
	cli.Row(w, "Type:", cmp.Or(app.Spec.Type, runnerapi.TypeDeployment))
	cli.Row(w, "Phase:", app.Status.Phase)
	cli.Row(w, "Image:", app.Spec.Image)
	if app.Status.Revision > 0 {
		cli.Row(w, "Revision:", app.Status.Revision)
	}
	if u := app.Status.Undone; u != nil {
		cli.Row(w, "Undone:", undoneText(u))
	}
	if app.Spec.Type.Runs() {
		runRows(w, app)
	} else {
		cli.Row(w, "Ready:", ready(app))
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
		if !c.Holds() {
			cli.Row(w, string(c.Type)+":", conditionText(c))
		}
	}
	if since := app.Status.LastTransition; since != nil {
		cli.Row(w, "Since:", cli.Time(*since)+" ("+cli.Ago(*since)+")")
	}
	if d := app.Status.Drift; d != nil {
		cli.Row(w, "Drift:", driftText(d))
	}
	waitingRows(w, app.Status.WaitingFor, app.Status.LastLines)
	diagnosisRows(w, app.Status.Diagnosis)
}

// waitingRows prints what is waited for, and what the init container wrote that is waited for.
func waitingRows(w io.Writer, what string, lastLines []string) {
	if what != "" {
		cli.Row(w, "Waits for:", what)
	}
	for _, line := range lastLines {
		cli.Row(w, "Last lines:", line)
	}
}

func diagnosisRows(w io.Writer, d *runnerapi.Diagnosis) {
	if d == nil {
		return
	}
	cli.Row(w, "Cause:", d.Cause)
	cli.Row(w, "Message:", d.Message)
	cli.Row(w, "Fix:", d.Fix)
	cli.Row(w, "Object:", d.Object)
	if d.ExitCode != nil {
		cli.Row(w, "Exit code:", *d.ExitCode)
	}
	for _, line := range d.LastLines {
		cli.Row(w, "Last lines:", line)
	}
}

// driftText describes the foreign changes to the App's objects.
func driftText(d *runnerapi.Drift) string {
	return fmt.Sprintf("put back %d times, last %s: %s", d.Corrections, cli.Ago(d.LastAt), d.What())
}

// runRows prints when a Job or CronJob runs and how its runs ended.
func runRows(w io.Writer, app runnerapi.App) {
	if s := app.Spec.Schedule; s != nil {
		when := s.Cron
		if s.Suspended {
			when += " (suspended)"
		}
		cli.Row(w, "Schedule:", when)
	}
	for _, r := range app.Status.Runs {
		cli.Row(w, "Run:", fmt.Sprintf("%s %s, %s", r.Name, r.Outcome, cli.Ago(r.StartedAt)))
	}
}
