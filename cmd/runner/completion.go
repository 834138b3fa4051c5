package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

// completionPatience is how long a user who pressed Tab waits.
const completionPatience = 3 * time.Second

// completeAgent completes the first argument with the agents' names. If they are not available in
// time, it offers none; an error would spoil the line that the user is typing.
func (a *app) completeAgent(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	l, err := a.login()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	agents, err := l.snapshot(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, g := range agents {
		names = append(names, g.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeApp completes the second argument with the Apps' names.
func (a *app) completeApp(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeAgent(cmd, args, typed)
	}
	namespace, _ := cmd.Flags().GetString("namespace") // every command with an App has it
	return a.completed(cmd, args[0], func(ctx context.Context, t *target) (names []string, err error) {
		apps, err := t.List(ctx, namespace)
		for _, app := range apps {
			names = append(names, app.Name)
		}
		return names, err
	})
}

// completeNode completes the second argument with the nodes' names.
func (a *app) completeNode(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) != 1 {
		return a.completeAgent(cmd, args, typed)
	}
	return a.completed(cmd, args[0], func(ctx context.Context, t *target) (names []string, err error) {
		nodes, err := t.ListNodes(ctx)
		for _, node := range nodes {
			names = append(names, node.Name)
		}
		return names, err
	})
}

// completed asks an agent for names, and returns none if the agent cannot be reached.
func (a *app) completed(cmd *cobra.Command, agent string, ask func(context.Context, *target) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionPatience)
	defer cancel()
	quiet := &app{streams: streams{err: nowhere{}}, credentials: a.credentials, patience: completionPatience}
	var names []string
	_ = quiet.on(ctx, agent, func(ctx context.Context, t *target) (err error) {
		names, err = ask(ctx, t)
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

type nowhere struct{}

func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
