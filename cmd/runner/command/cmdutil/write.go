package cmdutil

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Writing is what all commands share that change something.
type Writing struct {
	DryRun bool
	Key    string
}

// AddWriting adds the flags.
func (w *Writing) AddWriting(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.DryRun, "dry-run", false, "run all checks of the cluster, but change nothing")
	cmd.Flags().StringVar(&w.Key, "idempotency-key", "", "key of this command; a command sent again with its key is carried out once")
}

// Options returns what the flags say.
func (w *Writing) Options() runnerapi.WriteOptions {
	return runnerapi.WriteOptions{DryRun: w.DryRun, IdempotencyKey: w.Key}
}
