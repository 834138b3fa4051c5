package runnerapi

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type auditOutput struct{ Body AuditList }

func (s *server) auditRoutes() {
	register(s, operation("list-audit", http.MethodGet, "/audit", "Audit", "Read the audit log",
		"Every command of every Runner and every refusal, as the agent keeps them: chained by hash, bounded in number, without secrets.", 0),
		func(ctx context.Context, in *params.Audit) (*auditOutput, error) {
			if s.Audit == nil {
				return nil, problem.Errorf(problem.NotFound, "", "this agent keeps no audit log")
			}
			list, err := s.Audit.Audit(ctx, in.After, in.Limit)
			list.Items = notNil(list.Items)
			return &auditOutput{Body: list}, err
		})
}
