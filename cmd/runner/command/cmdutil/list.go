package cmdutil

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// Listing lists what a namespace has of one kind.
type Listing[T any] struct {
	Use            string // "list" by default
	Short, Example string
	Of             func(*client.Client) Lister[T]
	// Every marks what one call without a namespace lists for all namespaces.
	Every bool
	List  func([]T) any // in the Runner API's form, for -o json and yaml
	Table func(io.Writer, ...T)
}

// Lister is a handle of the client that lists objects of a namespace.
type Lister[T any] interface {
	List(ctx context.Context, namespace string) ([]T, error)
}

// Command returns the command list.
func (l Listing[T]) Command(a *CLI) *cobra.Command {
	var out cli.Output
	var scope Scope
	use := cmp.Or(l.Use, "list")
	cmd := &cobra.Command{
		Use: use + " [AGENT]", Short: l.Short,
		Example:           "  " + l.Example,
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *Target) error {
				items, err := l.items(ctx, t, scope)
				if err != nil {
					return err
				}
				if len(items) == 0 && out.Table() {
					a.SayNone(scope)
				}
				out.Namespaced = scope.All
				return out.Write(a.Out, l.List(items), func(w io.Writer) { l.Table(w, items...) })
			})
		},
	}
	scope.Add(cmd, &out)
	return cmd
}

func (l Listing[T]) items(ctx context.Context, t *Target, scope Scope) ([]T, error) {
	if scope.All && l.Every {
		items, err := l.Of(t.Client).List(ctx, "")
		if err != nil {
			return nil, At(t, "", err)
		}
		return items, nil
	}
	return In(ctx, t, scope, l.Of(t.Client).List)
}
