package cmdutil

import (
	"context"
	"errors"

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
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if s.All && cmd.Flags().Changed("namespace") {
			return cli.Usage(errors.New("--namespace names one namespace, and --all-namespaces means all: give one of them"))
		}
		return nil
	}
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
