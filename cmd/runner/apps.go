package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newApps(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	var all bool
	cmd := &cobra.Command{
		Use:               "apps AGENT",
		Short:             "List the Apps in an agent's cluster",
		Example:           "  pipeops-runner apps shop\n  pipeops-runner apps shop -A -o json",
		Args:              exactArgs("AGENT"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if all {
				namespace = ""
			}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				apps, err := t.List(ctx, namespace)
				if err != nil {
					return at(t, namespace, err)
				}
				if len(apps) == 0 && out.Table() && !all {
					a.say("no Apps in namespace %s; -A lists those of all namespaces", namespace)
				}
				return out.Write(a.out, runnerapi.AppList{Items: apps}, func(w io.Writer) { appTable(w, apps) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	cmd.Flags().BoolVarP(&all, "all-namespaces", "A", false, "list the Apps of all namespaces that the agent manages")
	return cmd
}

func appTable(w io.Writer, apps []runnerapi.App) {
	cli.Row(w, "NAMESPACE", "NAME", "PHASE", "READY", "RESTARTS", "IMAGE", "AGE", "CAUSE")
	for _, app := range apps {
		var cause runnerapi.Cause
		if app.Status.Diagnosis != nil {
			cause = app.Status.Diagnosis.Cause
		}
		cli.Row(w, app.Namespace, app.Name, app.Status.Phase, ready(app), app.Status.Restarts, app.Spec.Image, cli.Age(app.CreatedAt), cause)
	}
}

// printApp prints one App: its name for scripts and people, or the whole.
func (a *app) printApp(app runnerapi.App, out *cli.Output) error {
	return out.Write(a.out, app, func(w io.Writer) {
		cli.Row(w, "NAMESPACE", "NAME", "PHASE", "READY", "IMAGE")
		cli.Row(w, app.Namespace, app.Name, app.Status.Phase, ready(app), app.Spec.Image)
		for _, url := range app.Status.URLs {
			cli.Say(w, "in the cluster at %s", cli.Printable(url))
		}
		for _, url := range app.Status.PublicURLs {
			cli.Say(w, "public at %s", cli.Printable(url))
		}
		for _, c := range app.Status.Conditions {
			if !c.Holds() {
				cli.Say(w, "%s", cli.Printable(conditionText(c)))
			}
		}
	})
}

// conditionText returns what does not hold of an App, and the fix.
func conditionText(c runnerapi.Condition) string {
	text := c.Message
	if c.Type == runnerapi.ConditionIngressReady {
		text = "not served yet: " + text
	}
	if c.Fix != "" {
		text += "; fix: " + c.Fix
	}
	return text
}

// agentWord matches the placeholder of the agent in a fix with a command.
var agentWord = regexp.MustCompile(`\bAGENT\b`)

// at adds to an error where it happened.
func at(t *target, what string, err error) error {
	known := &runnerapi.Error{}
	if errors.As(err, &known) { // the agent does not know by which name it was called
		known.Fix = agentWord.ReplaceAllString(known.Fix, t.agent.Name)
	}
	if what != "" {
		return fmt.Errorf("%s: %s: %w", t, what, err)
	}
	return fmt.Errorf("%s: %w", t, err)
}
