package dashboard

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

type auditData struct {
	Items        []runnerapi.AuditRecord
	Head         runnerapi.AuditHead
	First, Last  int64
	Older, Newer string // queries; empty for none
	Refused      bool   // only refusals are shown
	Store        string
}

// maxAudit is how many records are read for one page of the audit log.
const maxAudit = 50

func (d *clusterPages) audit() view[auditData] {
	return view[auditData]{
		site: d.site, name: "audit", page: titled("Audit log", "/audit"),
		read: func(r *http.Request) func(context.Context) (auditData, error) {
			return func(ctx context.Context) (auditData, error) { return d.readAudit(ctx, r.URL.Query()) }
		},
		watch: func(*http.Request) []watched { return nil },
	}
}

// readAudit returns the newest records, or those up to a number.
func (d *clusterPages) readAudit(ctx context.Context, query url.Values) (auditData, error) {
	data := auditData{Refused: query.Get("refused") == "true", Store: d.opts.Audit.String()}
	after := int64(-1)
	if to, err := strconv.ParseInt(query.Get("to"), 10, 64); err == nil && to > 0 {
		after = max(to-maxAudit, 0)
	}
	list, err := audit.Read(ctx, d.opts.Audit, after, maxAudit)
	if err != nil {
		return data, unread(err, "reading the audit log")
	}
	data.show(list)
	return data, nil
}

func (a *auditData) show(list runnerapi.AuditList) {
	a.Head, a.Items = list.Head, list.Items
	if n := len(a.Items); n > 0 {
		a.First, a.Last = a.Items[0].Seq, a.Items[n-1].Seq
		if a.First > 1 {
			a.Older = a.query(a.First - 1)
		}
		if a.Last < a.Head.Seq {
			a.Newer = a.query(a.Last + maxAudit)
		}
	}
	if a.Refused {
		a.Items = slices.DeleteFunc(a.Items, func(r runnerapi.AuditRecord) bool { return r.Outcome != runnerapi.AuditRefused })
	}
	slices.Reverse(a.Items)
}

func (a *auditData) query(to int64) string {
	q := url.Values{"to": {strconv.FormatInt(to, 10)}}
	if a.Refused {
		q.Set("refused", "true")
	}
	return "?" + q.Encode()
}
