package cmdutil

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// Named completes a command about one object of a namespace: VERB [AGENT] NAME, with the flag
// --namespace. do gets a connection to the agent and the object's key.
func (a *CLI) Named(cmd *cobra.Command, do func(context.Context, *Target, runnerapi.Key) error) *cobra.Command {
	var namespace string
	NamespaceFlag(cmd, &namespace)
	cmd.Args = cli.ExactArgs("AGENT", "NAME")
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = a.CompleteAgent
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.On(cmd.Context(), args[0], func(ctx context.Context, t *Target) error {
			return do(ctx, t, runnerapi.Key{Namespace: namespace, Name: args[1]})
		})
	}
	return cmd
}

// Deleter is a handle of the client that deletes objects of a namespace.
type Deleter interface {
	Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
}

// Deletion completes a command that deletes an object of a kind and does not wait for its end.
func (a *CLI) Deletion(cmd *cobra.Command, kind string, of func(*client.Client) Deleter) *cobra.Command {
	var write Writing
	write.AddWriting(cmd)
	cmd.Use = "delete [AGENT] NAME"
	return a.Named(cmd, func(ctx context.Context, t *Target, key runnerapi.Key) error {
		if err := of(t.Client).Delete(ctx, key, write.Options()); err != nil {
			return At(t, key.String(), err)
		}
		a.SayDeleted(kind+" "+key.String(), write.DryRun)
		return nil
	})
}
