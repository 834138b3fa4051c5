package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
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
	*cmdutil.CLI
	out    cli.Output
	query  announce.TimelineQuery
	types  []string
	since  time.Duration
	follow bool
}

// NewTimeline returns the command timeline.
func NewTimeline(a *cmdutil.CLI) *cobra.Command {
	c := &timelineCommand{CLI: a}
	cmd := &cobra.Command{
		Use:   "timeline [AGENT] [NAME]",
		Short: "Show the timeline of an agent or of one App",
		Long: `Show the timeline of an agent and its Apps, or of the App NAME, newest event last.

The control plane stores the events, so you can read them while the agent is away. It keeps about
1000 events of each agent and at most 200 of each App. It always keeps the last event of each App.

With -f, the command continues until interrupted.`,
		Example:           "  pipeops-runner timeline shop --since 1h\n  pipeops-runner timeline shop web -n production --type app.failed -o json\n  pipeops-runner timeline shop -f",
		Args:              cli.RangeArgs(1, "AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.read(cmd, args[1:]); err != nil {
				return err
			}
			return c.run(cmd.Context(), args[0])
		},
	}
	cmdutil.NamespaceFlag(cmd, &c.query.Namespace)
	f := cmd.Flags()
	f.StringSliceVar(&c.types, "type", nil, "show only events of these types, such as app.failed")
	cli.DurationVar(f, &c.since, "since", 0, "show only events newer than this, such as 1h (default all)")
	f.IntVar(&c.query.Limit, "limit", announce.DefaultTimelineLimit, "number of latest events to show")
	f.BoolVarP(&c.follow, "follow", "f", false, "continue until interrupted")
	c.out.AddList(cmd)
	return cmd
}

func (c *timelineCommand) read(cmd *cobra.Command, name []string) error {
	switch {
	case c.query.Limit < 1:
		return cli.Usage(errors.New("--limit: must be 1 or more"))
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
	l, agent, err := c.Find(ctx, nameOrID)
	if err != nil {
		return err
	}
	defer l.Keep.Close()
	client := l.Snapshots()
	events, err := c.query.Newest(func(q announce.TimelineQuery) (announce.TimelinePage, error) {
		return client.Timeline(ctx, agent.ID, q)
	})
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
		c.Say("nothing of that is kept")
	}
	return c.out.Write(c.Out, lines, func(w io.Writer) {
		cli.Row(w, "TIME", "TYPE", "WHAT")
		for _, l := range lines {
			cli.Row(w, cli.Time(l.Time), l.Type, l.words())
		}
	})
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
			c.Say("%v; retrying", err)
			page = announce.TimelinePage{}
		default:
			page = next
		}
	}
}

func (c *timelineCommand) print(l eventLine) error {
	return c.out.WriteLine(c.Out, l, fmt.Sprintf("%s  %-16s  %s", cli.Time(l.Time), l.Type, l.words()))
}

// timelineError words a missing agent in the same way as other commands.
func timelineError(err error) error {
	if problem.Is(err, problem.NotFound) {
		return &cmdutil.ExitError{Err: err, Code: cmdutil.ExitNotFound, Fix: "list the agents with: pipeops-runner agents"}
	}
	return err
}

// eventLine is an event as -o json and -o yaml show it.
type eventLine struct {
	ID       string               `json:"id"`
	Sequence uint64               `json:"sequence"`
	Time     time.Time            `json:"time"`
	Type     announce.Type        `json:"type"`
	App      *announce.AppEvent   `json:"app,omitempty"`
	Agent    *announce.Agent      `json:"agent,omitempty"`
	Route    *announce.RouteEvent `json:"route,omitempty"`
	Alert    *announce.AlertEvent `json:"alert,omitempty"`
}

func lineOf(e announce.Event) eventLine {
	l := eventLine{ID: e.ID, Sequence: e.Sequence, Time: e.Time, Type: e.Type}
	if app, err := e.App(); err == nil {
		l.App = &app
	} else if agent, err := e.Agent(); err == nil {
		l.Agent = &agent
	} else if route, err := e.Route(); err == nil {
		l.Route = &route
	} else if alert, err := e.Alert(); err == nil {
		l.Alert = &alert
	}
	return l
}

// routeWords returns one line about a public host.
func routeWords(r announce.RouteEvent) string {
	text := r.Host
	if r.App != "" {
		text = runnerapi.Key{Namespace: r.Namespace, Name: r.App}.String() + "  " + text
	}
	if r.Reason != "" {
		text += ": " + strings.Join(strings.Fields(r.Reason), " ")
	}
	return text
}

// alertWords returns one line about an alert of the cluster's monitoring.
func alertWords(a announce.AlertEvent) string {
	text := a.Name
	if a.App != "" {
		text = runnerapi.Key{Namespace: a.Namespace, Name: a.App}.String() + "  " + text
	}
	if a.Severity != "" {
		text += "  " + a.Severity
	}
	if a.Summary != "" {
		text += ": " + strings.Join(strings.Fields(a.Summary), " ")
	}
	return text
}

// words returns one line about an event.
func (l *eventLine) words() string {
	switch {
	case l.App != nil:
		s := fmt.Sprintf("%s  %s  %s", runnerapi.Key{Namespace: l.App.Namespace, Name: l.App.Name}, l.App.Pods(), l.App.Image)
		if l.App.Cause != "" {
			s += fmt.Sprintf("  %s: %s", l.App.Cause, strings.Join(strings.Fields(l.App.Message), " "))
		}
		return s
	case l.Route != nil:
		return routeWords(*l.Route)
	case l.Alert != nil:
		return alertWords(*l.Alert)
	case l.Agent != nil:
		return fmt.Sprintf("%s  Kubernetes %s  %s", l.Agent.State, l.Agent.KubernetesVersion, cli.Count(l.Agent.Capacity.Nodes, "node"))
	}
	return ""
}
