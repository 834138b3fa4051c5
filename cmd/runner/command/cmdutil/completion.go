package cmdutil

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionPatience is how long a user who pressed Tab waits.
const completionPatience = 3 * time.Second

// CompleteAgent completes the first argument with the agents' names. If they are not available in
// time, it offers none; an error would spoil the line that the user is typing.
func (a *CLI) CompleteAgent(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	l, err := a.Login(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	agents, err := l.Snapshot(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, g := range agents {
		names = append(names, g.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// CompleteApp completes the second argument with the Apps' names.
func (a *CLI) CompleteApp(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.CompleteAgent(cmd, args, typed)
	}
	_ = a.UseContext(cmd)
	namespace, _ := cmd.Flags().GetString("namespace") // every command with an App has it
	return a.completed(cmd, args[0], func(ctx context.Context, t *Target) (names []string, err error) {
		apps, err := t.Apps().List(ctx, namespace)
		for _, app := range apps {
			names = append(names, app.Name)
		}
		return names, err
	})
}

// CompleteNode completes the second argument with the nodes' names.
func (a *CLI) CompleteNode(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.CompleteAgent(cmd, args, typed)
	}
	return a.completed(cmd, args[0], func(ctx context.Context, t *Target) (names []string, err error) {
		nodes, err := t.Nodes().List(ctx)
		for _, node := range nodes {
			names = append(names, node.Name)
		}
		return names, err
	})
}

// completed asks an agent for names, and returns none if the agent cannot be reached.
func (a *CLI) completed(cmd *cobra.Command, agent string, ask func(context.Context, *Target) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	quiet := &CLI{Streams: Streams{Err: nowhere{}}, Defaults: a.Defaults, Patience: completionPatience}
	var names []string
	_ = quiet.On(ctx, agent, func(ctx context.Context, t *Target) (err error) {
		names, err = ask(ctx, t)
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
