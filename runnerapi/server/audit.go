package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
)

type auditOutput struct{ Body runnerapi.AuditList }

// auditCalls are the calls about the audit log.
type auditCalls struct {
	*calls
	audit backend.Auditor
}

func (s *auditCalls) routes() {
	register(s.calls, operation("list-audit", "Audit", "Read the audit log",
		"Every command of every Runner and every refusal, as the agent keeps them: chained by hash, bounded in number, without secrets. "+
			"Records of namespaces that the customer's policy hides from the Runner are left out.", 0),
		func(ctx context.Context, in *params.Audit) (*auditOutput, error) {
			if s.audit == nil {
				return nil, problem.Errorf(problem.NotFound, "", "this agent keeps no audit log")
			}
			list, err := s.readAudit(ctx, in.After, in.Limit)
			list.Items = notNil(list.Items)
			return &auditOutput{Body: list}, err
		})
}

// readAudit leaves out the records of namespaces that the policy hides from the Runner. A page
// of which nothing is left is not the end of the log: then it is the next one.
func (s *auditCalls) readAudit(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error) {
	for {
		list, err := s.audit.List(ctx, after, limit)
		if err != nil || len(list.Items) == 0 {
			return list, err
		}
		last := list.Items[len(list.Items)-1].Seq
		list.Items = guard.Seen(ctx, s.guard, list.Items, func(r runnerapi.AuditRecord) string { return r.Namespace })
		if len(list.Items) > 0 || after < 0 || last <= after {
			return list, nil
		}
		after = last
	}
}
