package administration

import (
	"context"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Audit searches the audit records that an agent sent.
func (a *Agents) Audit(ctx context.Context, nameOrID string, f runnerapi.AuditFilter) (list runnerapi.AuditList, err error) {
	agent, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return list, err
	}
	head, err := a.store.AuditHead(ctx, agent.ID)
	if err != nil {
		return list, err
	}
	list, err = audit.Find(ctx, sentAudit{a.store, agent.ID}, f, nil)
	list.Head = runnerapi.AuditHead{Seq: head.Seq, Hash: head.Hash}
	return list, err
}

// sentAudit is the audit log that an agent sent.
type sentAudit struct {
	store   *store.Store
	agentID string
}

// Back implements audit.Source.
func (s sentAudit) Back(ctx context.Context, place int64, limit int) ([]audit.Entry, error) {
	return entries(s.store.AuditBack(ctx, s.agentID, place, limit))
}

// Ahead implements audit.Source.
func (s sentAudit) Ahead(ctx context.Context, place int64, limit int) ([]audit.Entry, error) {
	return entries(s.store.AuditAhead(ctx, s.agentID, place, limit))
}

func entries(lines []store.AuditLine, err error) ([]audit.Entry, error) {
	list := make([]audit.Entry, len(lines))
	for i, l := range lines {
		r, err := runnerapi.DecodeAuditRecord([]byte(l.Line))
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", l.Seq, err)
		}
		r.Hash = l.Hash
		list[i] = audit.Entry{AuditRecord: r, Place: l.Place, Broken: l.Broken}
	}
	return list, err
}
