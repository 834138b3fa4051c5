package cmdutil

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// Scope is what a list is about: a namespace, or all that the agent manages.
type Scope struct {
	Namespace string
	All       bool
}

// Add adds the flags of a list.
func (s *Scope) Add(cmd *cobra.Command, out *cli.Output) {
	out.AddList(cmd)
	NamespaceFlag(cmd, &s.Namespace)
	cmd.Flags().BoolVarP(&s.All, "all-namespaces", "A", false, "list those of all namespaces that the agent manages")
}

// In lists what is in scope. The API lists one namespace at a time.
func In[T any](ctx context.Context, t *Target, s Scope, list func(context.Context, string) ([]T, error)) ([]T, error) {
	if !s.All {
		items, err := list(ctx, s.Namespace)
		if err != nil {
			return nil, At(t, s.Namespace, err)
		}
		return items, nil
	}
	namespaces, err := t.Namespaces().List(ctx)
	if err != nil {
		return nil, At(t, "", err)
	}
	var all []T
	for _, ns := range namespaces {
		items, err := list(ctx, ns.Name)
		if err != nil {
			return nil, At(t, ns.Name, err)
		}
		all = append(all, items...)
	}
	return all, nil
}
