package main

import (
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// writing is what all commands share that change something.
type writing struct {
	dryRun bool
	key    string
}

func (w *writing) addWriting(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.dryRun, "dry-run", false, "run all checks of the cluster, but change nothing")
	cmd.Flags().StringVar(&w.key, "idempotency-key", "", "key of this command; a command sent again with its key is carried out once")
}

func (w *writing) options() runnerapi.WriteOptions {
	return runnerapi.WriteOptions{DryRun: w.dryRun, IdempotencyKey: w.key}
}
