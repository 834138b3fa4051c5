package command

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// recordTimeout bounds how long a change that is made waits to be recorded.
const recordTimeout = 10 * time.Second

// record writes to the audit log in the cluster what the owner did, with its arguments. An act is
// not undone if it cannot be recorded.
func record(cmd *cobra.Command, k *kube.Client, act runnerapi.AuditRecord, arguments any) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), recordTimeout)
	defer cancel()
	act.Time = time.Now().UTC()
	var err error
	if arguments != nil {
		act.Arguments, err = json.Marshal(arguments)
	}
	if err == nil {
		err = audit.Append(ctx, k.AuditStore(), cmd.CommandPath(), act, nil)
	}
	if err != nil {
		cli.Say(cmd.ErrOrStderr(), "warning: the audit log does not have this: %v", err)
	}
}
