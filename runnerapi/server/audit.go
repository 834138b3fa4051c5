package server

import (
	"context"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/guard"
)

type auditInput struct {
	runnerapi.AuditFilter
	params.Collect
}

type auditOutput struct{ Body runnerapi.AuditList }

// auditCalls are the calls about the audit log.
type auditCalls struct {
	*calls
	audit backend.Auditor
}

func (s *auditCalls) routes() {
	register(s.calls, operation("list-audit", "Audit", "Search the audit log",
		"Every command of every Runner and every refusal, newest call first. A call with two records, of its beginning and its end, is one item. "+
			"With after, the answer has each record as the agent keeps it: chained by hash, bounded in number, without secrets. "+
			"Records of namespaces that the customer's policy hides from the Runner are left out, and so are the owner's about the policy.", 0),
		func(ctx context.Context, in *auditInput) (*auditOutput, error) {
			if s.audit == nil {
				return nil, problem.Errorf(problem.NotFound, "", "this agent keeps no audit log")
			}
			list, err := s.read(ctx, in)
			list.Items = notNil(list.Items)
			return &auditOutput{Body: list}, err
		})
}

func (s *auditCalls) read(ctx context.Context, in *auditInput) (runnerapi.AuditList, error) {
	if in.After < 0 {
		return s.audit.Find(ctx, in.AuditFilter, s.visible(ctx))
	}
	if in.AuditFilter != (runnerapi.AuditFilter{Limit: in.Limit}) {
		return runnerapi.AuditList{}, problem.Errorf(problem.Invalid, "leave out after, or all other parameters but limit",
			"after is for each record of the log, and another parameter selects some calls").WithField("query.after")
	}
	return s.collect(ctx, in.After, in.Limit)
}

// visible returns whether the caller sees a record: those of namespaces that the policy hides from
// the Runner are left out, and those that are the owner's alone.
func (s *auditCalls) visible(ctx context.Context) func(runnerapi.AuditRecord) bool {
	in := guard.Visible(ctx, s.guard)
	return func(r runnerapi.AuditRecord) bool { return in(r.Namespace) && !r.OwnersAlone() }
}

// collect leaves out what the caller does not see. A page of which nothing is left is not the end
// of the log: then it is the next one.
func (s *auditCalls) collect(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error) {
	visible := s.visible(ctx)
	for {
		list, err := s.audit.List(ctx, after, limit)
		if err != nil || len(list.Items) == 0 {
			return list, err
		}
		last := list.Items[len(list.Items)-1].Seq
		list.Items = slices.DeleteFunc(list.Items, func(c runnerapi.AuditCall) bool { return !visible(c.AuditRecord) })
		if len(list.Items) > 0 || last <= after {
			return list, nil
		}
		after = last
	}
}
