package console

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// operatorAudit is what the page of the operators' audit log shows.
type operatorAudit struct {
	web.AuditLog
	Report *audit.Report // of the verification, if that was asked for
}

func (p *accessPages) audit(w http.ResponseWriter, r *http.Request) error {
	search := web.AuditSearch{Who: "Operator", Name: "operators-audit", Empty: "Every change of an operator is one, and every refusal.",
		Item: func(c runnerapi.AuditCall) any { return operatorapi.OperatorRecordOf(c) },
		Read: func(ctx context.Context, f runnerapi.AuditFilter) (runnerapi.AuditList, error) {
			list, err := operatorapi.GetOperatorAudit.Do(calling(ctx), p.opts.API, operatorapi.OperatorAuditInput{AuditFilter: f})
			return list.Calls(), err
		}}
	if search.Exporting(r) {
		return search.Export(w, r)
	}
	return show(p.site, w, r, "audit", page(r, "Operators' audit log", operatorapi.ConsolePath+"/audit", ""), func(ctx context.Context) (data operatorAudit, err error) {
		if data.AuditLog, err = search.Page(ctx, r.URL.Query()); err != nil || r.URL.Query().Get("verify") == "" {
			return data, err
		}
		report, err := operatorapi.VerifyOperatorAudit.Do(ctx, p.opts.API, operatorapi.VerifyAuditInput{})
		data.Report = &report
		return data, err
	})
}

// agentAudit is what the page of an agent's audit log shows.
type agentAudit struct {
	web.AuditLog
	Agent announce.Agent
}

func (p *fleetPages) agentAudit(w http.ResponseWriter, r *http.Request) error {
	search := web.AuditSearch{Who: "Runner", Name: "agent-audit", Empty: "The agent sends its audit log if its cluster owner wants it.",
		Read: func(ctx context.Context, f runnerapi.AuditFilter) (runnerapi.AuditList, error) {
			return operatorapi.GetAgentAudit.Do(calling(ctx), p.opts.API, operatorapi.AgentAuditInput{Agent: r.PathValue("name"), AuditFilter: f})
		}}
	if search.Exporting(r) {
		return search.Export(w, r)
	}
	return show(p.site, w, r, "agent-audit", page(r, "Audit log of an agent", "/console/", ""), func(ctx context.Context) (data agentAudit, err error) {
		found, err := operatorapi.GetAgent.Do(ctx, p.opts.API, operatorapi.GetAgentInput{Agent: r.PathValue("name")})
		if err != nil {
			return data, err
		}
		data.Agent = found.Agent
		data.AuditLog, err = search.Page(ctx, r.URL.Query())
		return data, err
	})
}
