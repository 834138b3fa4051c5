package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// timelinePoll is how often a timeline that is followed is asked for.
const timelinePoll = 2 * time.Second

// timelineCommand shows what happened to an agent, or to an App, as the control plane
// has kept it.
type timelineCommand struct {
	*app
	out    cli.Output
	query  announce.TimelineQuery
	types  []string
	since  time.Duration
	follow bool
}

func newTimeline(a *app) *cobra.Command {
	c := &timelineCommand{app: a}
	cmd := &cobra.Command{
		Use:   "timeline AGENT [NAME]",
		Short: "Show the timeline of an agent or of one App",
		Long: `Show the timeline of an agent and its Apps, or of the App NAME, newest event last.

The control plane stores the events, so you can read them while the agent is away. It keeps about
1000 events of each agent and at most 200 of each App. It always keeps the last event of each App.

With -f, the command continues until interrupted.`,
		Example:           "  pipeops-runner timeline shop --since 1h\n  pipeops-runner timeline shop web -n production --type app.failed -o json\n  pipeops-runner timeline shop -f",
		Args:              rangeArgs(1, "AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.read(cmd, args[1:]); err != nil {
				return err
			}
			return c.run(cmd.Context(), args[0])
		},
	}
	namespaceFlag(cmd, &c.query.Namespace)
	f := cmd.Flags()
	f.StringSliceVar(&c.types, "type", nil, "show only events of these types, such as app.failed")
	f.DurationVar(&c.since, "since", 0, "show only events newer than this, such as 1h (default all)")
	f.IntVar(&c.query.Limit, "limit", announce.DefaultTimelineLimit, "number of latest events to show")
	f.BoolVarP(&c.follow, "follow", "f", false, "continue until interrupted")
	c.out.Add(cmd)
	return cmd
}

func (c *timelineCommand) read(cmd *cobra.Command, name []string) error {
	switch {
	case c.query.Limit < 1:
		return usageError{errors.New("--limit: must be 1 or more")}
	case c.since > 0:
		c.query.Since = time.Now().Add(-c.since)
	}
	if len(name) > 0 {
		c.query.App = name[0]
	} else if !cmd.Flags().Changed("namespace") {
		c.query.Namespace = "" // the default is for NAME: an agent's timeline is whole
	}
	for _, t := range c.types {
		c.query.Types = append(c.query.Types, announce.Type(t))
	}
	return nil
}

func (c *timelineCommand) run(ctx context.Context, nameOrID string) error {
	l, agent, err := c.find(ctx, nameOrID)
	if err != nil {
		return err
	}
	defer l.keep.Close()
	client := l.controlPlane()
	events, err := last(ctx, client, agent.ID, c.query)
	if err != nil {
		return timelineError(err)
	}
	if c.follow {
		return c.goOn(ctx, client, agent.ID, events)
	}
	lines := make([]eventLine, len(events))
	for i, e := range events {
		lines[i] = lineOf(e)
	}
	if len(lines) == 0 && c.out.Table() {
		c.say("nothing of that is kept")
	}
	return c.out.Write(c.app.out, lines, func(w io.Writer) {
		cli.Row(w, "TIME", "TYPE", "WHAT")
		for _, l := range lines {
			cli.Row(w, cli.Time(l.Time), l.Type, l.words())
		}
	})
}

// last returns the newest events that there are of what is asked for, oldest first.
func last(ctx context.Context, client *announce.SnapshotClient, agentID string, q announce.TimelineQuery) (events []announce.Event, err error) {
	for left := q.Limit; ; {
		q.Limit = left
		page, err := client.Timeline(ctx, agentID, q)
		if err != nil {
			return nil, err
		}
		events = append(events, page.Events...)
		if left -= len(page.Events); left <= 0 || !page.More {
			break
		}
		q = page.Next(q)
	}
	slices.Reverse(events)
	return events, nil
}

// goOn prints what is there, and then what comes. The control plane may be away
// meanwhile.
func (c *timelineCommand) goOn(ctx context.Context, client *announce.SnapshotClient, agentID string, events []announce.Event) error {
	q := c.query
	q.OldestFirst, q.Limit, q.Since = true, announce.MaxTimelineLimit, time.Time{}
	if len(events) == 0 {
		q.Since = time.Now()
		if c.since > 0 {
			q.Since = c.query.Since
		}
	}
	page := announce.TimelinePage{Events: events}
	for {
		for _, e := range page.Events {
			if err := c.print(lineOf(e)); err != nil {
				return err
			}
		}
		q = page.Next(q)
		if !page.More {
			if !retry.Wait(ctx, timelinePoll) {
				return nil // following has no other end
			}
		}
		next, err := client.Timeline(ctx, agentID, q)
		known := &problem.Error{}
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // likewise
		case errors.As(err, &known) && !known.Passing():
			return timelineError(err)
		case err != nil:
			c.say("%v; trying again", err)
			page = announce.TimelinePage{}
		default:
			page = next
		}
	}
}

func (c *timelineCommand) print(l eventLine) error {
	switch c.out.Format {
	case "json": // one object in a line, for jq and the like
		return cli.JSONLine(c.app.out, l)
	case "yaml":
		cli.Say(c.app.out, "---") // the encoder reports the same error
		return c.out.Write(c.app.out, l, nil)
	}
	return cli.Print(c.app.out, cli.Printable(fmt.Sprintf("%s  %-16s  %s", cli.Time(l.Time), l.Type, l.words())))
}

// timelineError words a missing agent in the same way as other commands.
func timelineError(err error) error {
	known := &problem.Error{}
	if errors.As(err, &known) && known.Code == problem.NotFound {
		return &exitError{error: err, code: exitNotFound, fix: "list the agents with: pipeops-runner agents"}
	}
	return err
}

// eventLine is an event as -o json and -o yaml show it.
type eventLine struct {
	ID       string             `json:"id"`
	Sequence uint64             `json:"sequence"`
	Time     time.Time          `json:"time"`
	Type     announce.Type      `json:"type"`
	App      *announce.AppEvent `json:"app,omitempty"`
	Agent    *announce.Agent    `json:"agent,omitempty"`
}

func lineOf(e announce.Event) eventLine {
	l := eventLine{ID: e.ID, Sequence: e.Sequence, Time: e.Time, Type: e.Type}
	if app, err := e.App(); err == nil {
		l.App = &app
	} else if agent, err := e.Agent(); err == nil {
		l.Agent = &agent
	}
	return l
}

// words returns one line about an event.
func (l *eventLine) words() string {
	switch {
	case l.App != nil:
		s := fmt.Sprintf("%s  %d/%d ready  %s", runnerapi.Key{Namespace: l.App.Namespace, Name: l.App.Name}, l.App.Ready, l.App.Replicas, l.App.Image)
		if l.App.Cause != "" {
			s += fmt.Sprintf("  %s: %s", l.App.Cause, strings.Join(strings.Fields(l.App.Message), " "))
		}
		return s
	case l.Agent != nil:
		return fmt.Sprintf("%s  Kubernetes %s  %d nodes", l.Agent.State, l.Agent.KubernetesVersion, l.Agent.Capacity.Nodes)
	}
	return ""
}
