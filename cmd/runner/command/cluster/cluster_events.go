package cluster

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewEvents returns the command events.
func NewEvents(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var scope cmdutil.Scope
	var filter runnerapi.EventFilter
	cmd := &cobra.Command{
		Use: "events [AGENT]", Short: "List the Kubernetes events of a namespace, newest first",
		Example: `  pipeops-runner events shop -n production --type Warning
  pipeops-runner events shop --kind Pod --name web-7d4b9c6f5-x2x4q --since 10m`,
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if filter.Limit < 1 || filter.Limit > runnerapi.MaxEvents {
				return cli.Usage(fmt.Errorf("--limit: is from 1 to %d", runnerapi.MaxEvents))
			}
			if err := eventType(&filter.Type); err != nil {
				return cli.Usage(err)
			}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				events, err := cmdutil.In(ctx, t, scope, func(ctx context.Context, namespace string) ([]runnerapi.ClusterEvent, error) {
					return t.Events().List(ctx, namespace, filter)
				})
				if err != nil {
					return err
				}
				out.Namespaced = scope.All
				return out.Write(a.Out, runnerapi.EventList{Items: events}, func(w io.Writer) { clusterEventTable(w, events) })
			})
		},
	}
	scope.Add(cmd, &out)
	fl := cmd.Flags()
	fl.StringVar(&filter.Kind, "kind", "", "list only events of objects of this kind, such as Pod")
	fl.StringVar(&filter.Name, "name", "", "list only events of the object with this name")
	fl.StringVar(&filter.Type, "type", "", "list only Normal or Warning events")
	_ = cmd.RegisterFlagCompletionFunc("type", cobra.FixedCompletions(eventTypes, cobra.ShellCompDirectiveNoFileComp)) // fails only for an unknown flag
	cli.DurationVar(fl, &filter.Since, "since", 0, "list only events newer than this")
	fl.IntVar(&filter.Limit, "limit", 200, "maximum number of events")
	return cmd
}

// eventTypes are the event types of Kubernetes.
var eventTypes = []string{"Normal", "Warning"}

// eventType normalizes a type to Kubernetes' spelling; the user may type it in any case.
func eventType(typed *string) error {
	for _, known := range eventTypes {
		if strings.EqualFold(*typed, known) {
			*typed = known
			return nil
		}
	}
	if *typed == "" {
		return nil
	}
	return fmt.Errorf("--type: %q is none of %s", *typed, strings.Join(eventTypes, ", "))
}

func clusterEventTable(w io.Writer, events []runnerapi.ClusterEvent) {
	cli.Row(w, "AGE", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE")
	for _, e := range events {
		cli.Row(w, cli.Age(e.LastSeen), e.Type, e.Reason, e.Object.Kind+"/"+e.Object.Name, e.Count, e.Message)
	}
}
