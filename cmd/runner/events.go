package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// eventsCommand prints what becomes of an App.
type eventsCommand struct {
	*app
	namespace string
	opts      runnerapi.EventOptions
	json      bool
}

func newEvents(a *app) *cobra.Command {
	c := &eventsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "events AGENT NAME",
		Short: "Print the state of an App and each change of it",
		Long: `Print the state of an App and each change of it, until its newest rollout ends.

With -f, the command continues until interrupted, also across restarts of the agent.`,
		Example:           "  pipeops-runner events shop web\n  pipeops-runner events shop web -f --json",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: c.namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := t.Events(ctx, key, c.opts, c.print); err != nil {
					return at(t, key.String(), err)
				}
				return nil
			})
		},
	}
	namespaceFlag(cmd, &c.namespace)
	cmd.Flags().BoolVarP(&c.opts.Follow, "follow", "f", false, "continue until interrupted")
	cmd.Flags().BoolVar(&c.json, "json", false, "print one JSON object per line")
	return cmd
}

func (c *eventsCommand) print(e runnerapi.AppEvent) error {
	if c.json {
		return cli.JSONLine(c.out, e)
	}
	return cli.Print(c.out, cli.Printable(cli.Time(e.Time)+" "+eventText(e)))
}

func eventText(e runnerapi.AppEvent) string {
	s := e.Status
	if e.Type == runnerapi.EventRemoved {
		return fmt.Sprintf("%s/%s: removed", e.Namespace, e.Name)
	}
	text := fmt.Sprintf("%s/%s: %s, %d ready, %d updated, generation %d", e.Namespace, e.Name, s.Phase, s.ReadyReplicas, s.UpdatedReplicas, e.Generation)
	if d := s.Diagnosis; d != nil {
		text += fmt.Sprintf("; %s: %s (fix: %s)", d.Cause, d.Message, d.Fix)
	}
	if u := s.Undone; u != nil {
		text += "; " + undoneText(u)
	}
	return text
}

func undoneText(u *runnerapi.Undone) string {
	text := fmt.Sprintf("revision %d failed and was taken back to revision %d", u.Revision, u.Restored)
	if u.Diagnosis != nil {
		text += fmt.Sprintf(": %s: %s", u.Diagnosis.Cause, u.Diagnosis.Message)
	}
	return text
}
