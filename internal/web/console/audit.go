package console

import (
	"context"
	"net/http"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// operatorAudit is what the page of the operators' audit log shows.
type operatorAudit struct {
	operatorapi.OperatorAudit
	Report       *audit.Report // of the verification, if that was asked for
	Older, Newer string        // queries of the pages beside this one; empty for none
	First, Last  int64
}

func (p *accessPages) audit(w http.ResponseWriter, r *http.Request) error {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil || after < 0 {
		after = -1
	}
	return show(p.site, w, r, "audit", page(r, "Operators' audit log", operatorapi.ConsolePath+"/audit", ""), func(ctx context.Context) (data operatorAudit, err error) {
		data.OperatorAudit, err = operatorapi.GetOperatorAudit.Do(ctx, p.opts.API, operatorapi.OperatorAuditInput{After: after, Limit: recordsShown})
		if err != nil {
			return data, err
		}
		data.turn()
		if r.URL.Query().Get("verify") != "" {
			report, err := operatorapi.VerifyOperatorAudit.Do(ctx, p.opts.API, operatorapi.VerifyAuditInput{})
			data.Report = &report
			return data, err
		}
		return data, nil
	})
}

// turn orders the records, the newest first, and finds the pages beside this one.
func (d *operatorAudit) turn() {
	d.Items = newestFirst(d.Items)
	if len(d.Items) == 0 {
		return
	}
	d.First, d.Last = d.Items[len(d.Items)-1].Seq, d.Items[0].Seq
	if d.First > 1 {
		d.Older = "?after=" + strconv.FormatInt(max(0, d.First-1-recordsShown), 10)
	}
	if d.Last < d.Head.Seq {
		d.Newer = "?after=" + strconv.FormatInt(d.Last, 10)
	}
}
