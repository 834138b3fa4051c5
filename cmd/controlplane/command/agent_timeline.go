package command

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// agentTimeline is the subcommand that shows what happened to an agent.
type agentTimeline struct {
	*app
	out   cli.Output
	query announce.TimelineQuery
	types []string
	since time.Duration
}

// timelineLine is an event as -o json and -o yaml show it.
type timelineLine struct {
	timelineEntry
	ID  string             `json:"id"`
	App *announce.AppEvent `json:"app,omitempty"`
}

func newAgentTimeline(a *app) *cobra.Command {
	c := &agentTimeline{app: a}
	cmd := &cobra.Command{
		Use:   "timeline AGENT",
		Short: "Show the timeline of an agent and its Apps",
		Long: `Show the timeline of an agent and its Apps, newest event last.

The control plane keeps about 1000 events of each agent and at most 200 of each App. It always
keeps the last event of each App.`,
		Example: `  pipeops-controlplane agent timeline shop --since 1h
  pipeops-controlplane agent timeline shop --namespace production --app web --type app.failed -o json`,
		Args: cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.read(); err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error { return c.run(ctx, admin, args[0]) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.query.Namespace, "namespace", "", "show only Apps in this namespace")
	f.StringVar(&c.query.App, "app", "", "show only this App of the namespace")
	f.StringSliceVar(&c.types, "type", nil, "show only events of these types, such as app.failed")
	cli.DurationVar(f, &c.since, "since", 0, "show only events newer than this, such as 1h (default all)")
	f.IntVar(&c.query.Limit, "limit", announce.DefaultTimelineLimit, "number of latest events to show")
	c.out.Add(cmd)
	return cmd
}

func (c *agentTimeline) read() error {
	switch {
	case c.query.App != "" && c.query.Namespace == "":
		return cli.Usage(errors.New("--namespace is missing: the one that the App is in"))
	case c.query.Limit < 1:
		return cli.Usage(errors.New("--limit: must be 1 or more"))
	case c.since > 0:
		c.query.Since = time.Now().Add(-c.since)
	}
	for _, t := range c.types {
		c.query.Types = append(c.query.Types, announce.Type(t))
	}
	return nil
}

// timelinePage returns a part of the timeline.
func timelinePage(ctx context.Context, admin operatorapi.Target, agent string, q announce.TimelineQuery) (page announce.TimelinePage, err error) {
	answer, err := operatorapi.GetTimeline.Do(ctx, admin, operatorapi.TimelineInput{
		Agent: agent, Namespace: q.Namespace, App: q.App, Types: q.Types, Since: q.Since, Before: q.Before, Limit: min(q.Limit, announce.MaxTimelineLimit),
	})
	if err != nil {
		return page, err
	}
	page.More = answer.More
	page.Events, err = operatorapi.DecodeEvents(answer.Events)
	return page, err
}

func (c *agentTimeline) run(ctx context.Context, admin operatorapi.Target, agent string) error {
	events, err := c.query.Newest(func(q announce.TimelineQuery) (announce.TimelinePage, error) {
		return timelinePage(ctx, admin, agent, q)
	})
	if err != nil {
		return err
	}
	lines := make([]timelineLine, len(events))
	for i, e := range events {
		line := &lines[i]
		line.ID, line.timelineEntry = e.ID, timelineEntry{Sequence: e.Sequence, Time: e.Time, Type: e.Type, Summary: operatorapi.Summary(e)}
		if app, err := e.App(); err == nil {
			line.App = &app
		}
	}
	return c.out.Write(c.app.out, lines, func(w io.Writer) {
		cli.Row(w, "TIME", "TYPE", "WHAT")
		for _, l := range lines {
			cli.Row(w, cli.Time(l.Time), l.Type, l.Summary)
		}
	})
}
