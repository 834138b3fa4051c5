package console

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// operatorAudit is what the page of the operators' audit log shows.
type operatorAudit struct {
	web.AuditLog
	Report *audit.Report // of the verification, if that was asked for
}

func (p *accessPages) audit(w http.ResponseWriter, r *http.Request) error {
	search := web.AuditSearch{Who: "Operator", Name: "operators-audit", Empty: "Every change of an operator is one, and every refusal.",
		Item: func(c audit.Call) any { return operatorapi.OperatorRecordOf(c) },
		Read: func(ctx context.Context, f audit.Filter) (found audit.Found, err error) {
			list, err := operatorapi.GetOperatorAudit.Do(calling(ctx), p.opts.API, operatorapi.OperatorAuditInput{Filter: f})
			for _, record := range list.Items {
				found.Calls = append(found.Calls, record.Call())
			}
			found.Older, found.Scanned, found.Head = list.Older, list.Scanned, list.Head
			return found, err
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
		Read: func(ctx context.Context, f audit.Filter) (found audit.Found, err error) {
			list, err := operatorapi.GetAgentAudit.Do(calling(ctx), p.opts.API, operatorapi.AgentAuditInput{Agent: r.PathValue("name"), Filter: f})
			for _, record := range list.Items {
				found.Calls = append(found.Calls, record.Call)
			}
			found.Older, found.Scanned, found.Head = list.Older, list.Scanned, list.Head
			return found, err
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
