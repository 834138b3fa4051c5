package agent

import (
	"context"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxAuditLines is how many records are handed over at a time.
const maxAuditLines = 64

// AuditStore returns where an agent of that configuration keeps its audit log: with its identity.
func AuditStore(c config.Config, k *kube.Client) audit.Store {
	if c.StateDir != "" {
		return audit.Files{Dir: filepath.Join(c.StateDir, "audit")}
	}
	return k.AuditStore()
}

// auditCopy hands the audit log over to the control plane, which keeps a copy.
type auditCopy struct {
	audit *audit.Log
	store audit.Store // where the log is
	log   zerolog.Logger
}

// run sends the audit log to the control plane, from the control plane's last record,
// until ctx ends. What the control plane does not accept is sent later: it is stored here.
func (c *auditCopy) run(ctx context.Context, control *controlapi.Client) error {
	wait := newBackoff()
	for {
		more, err := c.handOver(ctx, control)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the agent stops; that the call failed for it is not an error
		case err != nil:
			c.log.Debug().Err(err).Msg("failed to send the newest audit records to the control plane; retrying")
			if !retry.Wait(ctx, wait.NextBackOff()) {
				return nil
			}
			continue
		}
		wait.Reset()
		if more {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.audit.Grown():
		}
		if !retry.Wait(ctx, retry.Jitter(time.Second)) { // and what comes with it
			return nil
		}
	}
}

// handOver sends what follows the control plane's last record, and reports whether there may be
// more.
func (c *auditCopy) handOver(ctx context.Context, control *controlapi.Client) (more bool, err error) {
	theirs, err := control.Audit(ctx, controlapi.AuditRequest{Lines: []string{}})
	if err != nil {
		return false, err
	}
	lines, broken, err := audit.Following(ctx, c.store, runnerapi.AuditHead{Seq: theirs.Seq, Hash: theirs.Hash}, maxAuditLines)
	if err != nil {
		return false, err
	}
	if broken && theirs.Seq > 0 {
		c.log.Error().Int64("record", theirs.Seq).Stringer("store", c.store).
			Msg("the audit log does not contain the record that the control plane has: it was truncated, changed or recreated; see `pipeops-agent audit verify`")
	}
	if len(lines) == 0 {
		return false, nil
	}
	now, err := control.Audit(ctx, controlapi.AuditRequest{Lines: lines, Broken: broken})
	if err == nil && now.Seq == theirs.Seq && !broken { // what leads there is damaged
		now, err = control.Audit(ctx, controlapi.AuditRequest{Lines: lines, Broken: true})
	}
	return err == nil && len(lines) == maxAuditLines && now.Seq != theirs.Seq, err
}
