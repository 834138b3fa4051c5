package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// listing lists what a namespace has of one kind.
type listing[T any] struct {
	short, example string
	items          func(*client.Client, context.Context, string) ([]T, error)
	list           func([]T) any // in the Runner API's form, for -o json and yaml
	table          func(io.Writer, ...T)
}

func (l listing[T]) command(a *app) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use: "list AGENT", Short: l.short,
		Example:           "  " + l.example,
		Args:              exactArgs("AGENT"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				items, err := l.items(t.Client, ctx, namespace)
				if err != nil {
					return at(t, namespace, err)
				}
				if len(items) == 0 && out.Table() {
					a.say("there are none in namespace %s; -n names another", namespace)
				}
				return out.Write(a.out, l.list(items), func(w io.Writer) { l.table(w, items...) })
			})
		},
	}
	out.Add(cmd)
	namespaceFlag(cmd, &namespace)
	return cmd
}
