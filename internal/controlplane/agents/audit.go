package agents

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Audit stores what follows the records that it has of the agent. It is the second copy of the log,
// in which a truncated or replaced log on the agent's side shows. It skips records that it has, so
// sending them again is harmless.
func (r *Fleet) Audit(ctx context.Context, agentID string, req controlapi.AuditRequest) (controlapi.AuditAnswer, error) {
	var answer controlapi.AuditAnswer
	kept := 0
	err := r.store.Update(ctx, func(tx *store.Tx) error {
		head, err := tx.AuditHead(ctx, agentID)
		if err != nil {
			return err
		}
		fresh, err := r.follow(&head, agentID, req)
		if err != nil {
			return err
		}
		answer = controlapi.AuditAnswer{Seq: head.Seq, Hash: head.Hash}
		if kept = len(fresh); kept == 0 {
			return nil
		}
		return tx.AddAudit(ctx, agentID, fresh)
	})
	if err == nil {
		r.cfg.Audited(kept)
	}
	return answer, err
}

// follow picks the lines that continue the log and moves head to the last.
func (r *Fleet) follow(head *store.AuditLine, agentID string, req controlapi.AuditRequest) ([]store.AuditLine, error) {
	var fresh []store.AuditLine
	for _, text := range req.Lines {
		record, err := runnerapi.DecodeAuditRecord([]byte(text))
		if err != nil {
			return nil, problem.Errorf(problem.Invalid, "see whether the agent's audit log is damaged: pipeops-agent audit verify", "%v", err).WithField("lines")
		}
		line := store.AuditLine{Seq: record.Seq, Hash: runnerapi.AuditHash([]byte(text)), Line: text, At: r.cfg.Now()}
		switch {
		case record.Seq == head.Seq+1 && record.Prev == head.Hash:
		case req.Broken && len(fresh) == 0 && line.Hash != head.Hash:
			if line.Broken = head.Seq > 0; line.Broken { // else it is the oldest that there is
				r.cfg.Log.Error().Str("agent", agentID).Int64("had", head.Seq).Int64("got", record.Seq).
					Msg("agent's audit log does not continue its earlier records: records were removed or changed in its cluster")
			}
		default:
			continue
		}
		fresh = append(fresh, line)
		*head = line
	}
	return fresh, nil
}
