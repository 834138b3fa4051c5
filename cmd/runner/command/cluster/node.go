package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// NewNode returns the command node.
func NewNode(a *cmdutil.CLI) *cobra.Command {
	return cli.Group("node", "Manage the nodes of an agent's cluster",
		newNodeList(a), newNodeGet(a),
		newNodeCordon(a, "cordon", "Mark a node as unschedulable for new pods", client.Nodes.Cordon),
		newNodeDrain(a), newNodeJoin(a),
		newNodeCordon(a, "uncordon", "Mark a node as schedulable again", client.Nodes.Uncordon))
}

func newNodeList(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "list [AGENT]", Short: "List the nodes of an agent's cluster",
		Example:           "  pipeops-runner node list shop",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				nodes, err := t.Nodes().List(ctx)
				if err != nil {
					return cmdutil.At(t, "", err)
				}
				return out.Write(a.Out, runnerapi.NodeList{Items: nodes}, func(w io.Writer) { nodeTable(w, nodes...) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func newNodeGet(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "get [AGENT] NODE", Short: "Show a node with its conditions, taints and last events",
		Example:           "  pipeops-runner node get shop node-1",
		Args:              cli.ExactArgs("AGENT", "NODE"),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				node, err := t.Nodes().Get(ctx, args[1])
				if err != nil {
					return cmdutil.At(t, "node "+args[1], err)
				}
				return out.Write(a.Out, node, func(w io.Writer) { nodeDetails(w, node) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}

type nodeCommand func(client.Nodes, context.Context, string, runnerapi.WriteOptions) (runnerapi.Node, error)

func newNodeCordon(a *cmdutil.CLI, verb, short string, do nodeCommand) *cobra.Command {
	var out cli.Output
	var write cmdutil.Writing
	cmd := &cobra.Command{
		Use: verb + " [AGENT] NODE", Short: short,
		Example:           "  pipeops-runner node " + verb + " shop node-1",
		Args:              cli.ExactArgs("AGENT", "NODE"),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				node, err := do(t.Nodes(), ctx, args[1], write.Options())
				if err != nil {
					return cmdutil.At(t, "node "+args[1], err)
				}
				return out.Write(a.Out, node, func(w io.Writer) { nodeTable(w, node) })
			})
		},
	}
	out.Add(cmd)
	write.AddWriting(cmd)
	return cmd
}

func newNodeDrain(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var write cmdutil.Writing
	var options runnerapi.DrainOptions
	var grace int64
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "drain [AGENT] NODE", Short: "Cordon a node and evict its pods",
		Long: `Cordon a node and evict its pods, as their disruption budgets allow.

Pods of DaemonSets and static pods stay. The command retries refused evictions until --timeout. If
you call it again, it continues where it ended. With an idempotency key, it first reports its
earlier outcome and then continues.`,
		Example:           "  pipeops-runner node drain shop node-1 --timeout 10m",
		Args:              cli.ExactArgs("AGENT", "NODE"),
		ValidArgsFunction: a.CompleteNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if timeout <= 0 {
				return cli.Usage(errors.New("--timeout: give a duration above zero, such as 10m"))
			}
			if cmd.Flags().Changed("grace-period") {
				if grace < 0 {
					return cli.Usage(errors.New("--grace-period: give a number of seconds, 0 or more"))
				}
				options.GracePeriodSeconds = &grace
			}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				drain, err := drain(ctx, a, t, args[1], options, write.Options(), timeout)
				if err != nil {
					return err
				}
				return out.Write(a.Out, drain, func(w io.Writer) { drainTable(w, drain) })
			})
		},
	}
	out.Add(cmd)
	write.AddWriting(cmd)
	fl := cmd.Flags()
	fl.Int64Var(&grace, "grace-period", 0, "seconds that pods get to terminate, instead of their own grace periods")
	cli.DurationVar(fl, &timeout, "timeout", 5*time.Minute, "how long to retry")
	fl.BoolVar(&options.Force, "force", false, "also evict pods that no controller creates again elsewhere: they are lost")
	fl.BoolVar(&options.DeleteEmptyDirData, "delete-emptydir-data", false, "also evict pods with emptyDir volumes, whose data is lost")
	return cmd
}

// drain drains a node and reports the changes that it sees.
func drain(ctx context.Context, a *cmdutil.CLI, t *cmdutil.Target, node string, options runnerapi.DrainOptions, write runnerapi.WriteOptions, timeout time.Duration) (runnerapi.Drain, error) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	said := ""
	drain, err := t.Nodes().Drain(limited, node, options, write, func(d runnerapi.Drain) {
		if now := drainProgress(d); now != said && !write.DryRun {
			a.Say("%s", now)
			said = now
		}
	})
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return drain, &cmdutil.ExitError{
			Code: cmdutil.ExitTimeout, Err: fmt.Errorf("node %s is not drained after %s: %s", node, timeout, drainProgress(drain)),
			Fix: "see what the budgets wait for; run it again to go on, or let the node have pods again: pipeops-runner node uncordon " + t.Agent.Name + " " + node,
		}
	}
	if err != nil {
		return drain, cmdutil.At(t, "node "+node, err)
	}
	return drain, nil
}

func drainProgress(d runnerapi.Drain) string {
	line := fmt.Sprintf("%d evicted, %d remain", len(d.Evicted), len(d.Remaining))
	for _, p := range d.Remaining {
		switch p.State {
		case "blocked":
			line += fmt.Sprintf("\n  %s/%s is kept: %s", p.Namespace, p.Name, cli.Printable(p.Message))
		case "failed":
			line += fmt.Sprintf("\n  %s/%s cannot be evicted: %s", p.Namespace, p.Name, cli.Printable(p.Message))
		}
	}
	return line
}

func drainTable(w io.Writer, d runnerapi.Drain) {
	cli.Row(w, "POD", "STATE", "MESSAGE")
	going := map[string]bool{}
	for _, p := range d.Remaining {
		going[p.Namespace+"/"+p.Name] = true
		cli.Row(w, p.Namespace+"/"+p.Name, p.State, p.Message)
	}
	for _, name := range d.Evicted {
		if !going[name] {
			cli.Row(w, name, "evicted", "")
		}
	}
}

func nodeTable(w io.Writer, nodes ...runnerapi.Node) {
	cli.Row(w, "NAME", "STATUS", "ROLES", "CPU", "MEMORY", "PODS", "VERSION", "AGE")
	for _, n := range nodes {
		cli.Row(w, n.Name, nodeStatus(n), strings.Join(n.Roles, ","), ofNode(n.CPU, cli.Cores), ofNode(n.Memory, cli.Memory),
			fmt.Sprintf("%d/%d", n.Pods.Count, n.Pods.Allocatable), n.KubeletVersion, cli.Age(n.CreatedAt))
	}
}

func nodeStatus(n runnerapi.Node) string {
	status := "Ready"
	if !n.Ready {
		status = "NotReady"
	}
	if !n.Schedulable {
		status += ",Cordoned"
	}
	return status
}

// ofNode returns the used part of a resource, or the requested part if the use is unknown.
func ofNode(r runnerapi.NodeResource, show func(int64) string) string {
	if r.Used == nil {
		return show(r.Requested) + " requested of " + show(r.Allocatable)
	}
	return show(*r.Used) + " used of " + show(r.Allocatable)
}

func nodeDetails(w io.Writer, n runnerapi.Node) {
	nodeTable(w, n)
	cli.Row(w, "SYSTEM", n.OS+"/"+n.Architecture, strings.Join(n.Addresses, ","))
	cli.Row(w, "REQUESTED", cli.Cores(n.CPU.Requested)+" cores", cli.Memory(n.Memory.Requested))
	for _, t := range n.Taints {
		cli.Row(w, "TAINT", t.Key+"="+t.Value, t.Effect)
	}
	cli.Row(w, "CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
	for _, c := range n.Conditions {
		cli.Row(w, c.Type, c.Status, c.Reason, cli.Age(c.Since), c.Message)
	}
	if len(n.Events) > 0 {
		cli.Row(w, "EVENT", "TYPE", "COUNT", "SEEN", "MESSAGE")
	}
	for _, e := range n.Events {
		cli.Row(w, e.Reason, e.Type, strconv.Itoa(int(e.Count)), cli.Age(e.LastSeen), e.Message)
	}
}
