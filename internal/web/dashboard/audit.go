package dashboard

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func (d *clusterPages) audit() view[web.AuditLog] {
	return view[web.AuditLog]{
		site: d.site, name: "audit", page: titled("Audit log", "/audit"),
		read: func(r *http.Request) func(context.Context) (web.AuditLog, error) {
			return func(ctx context.Context) (web.AuditLog, error) {
				log, err := d.auditSearch().Page(ctx, r.URL.Query())
				return log, unreadAudit(err)
			}
		},
		watch: func(*http.Request) []watched { return nil },
	}
}

// auditPage shows the page, or the file that it links to.
func (d *clusterPages) auditPage(w http.ResponseWriter, r *http.Request) error {
	if search := d.auditSearch(); search.Exporting(r) {
		return unreadAudit(search.Export(w, r))
	}
	return d.audit().show(w, r)
}

func unreadAudit(err error) error {
	if p := unread(err, "reading the audit log"); p != nil {
		return p
	}
	return nil
}

func (d *clusterPages) auditSearch() web.AuditSearch {
	return web.AuditSearch{
		Who: "Runner", Name: "audit", Empty: "The agent writes one for each command of a Runner, and each refusal.",
		Read: func(ctx context.Context, f runnerapi.AuditFilter) (runnerapi.AuditList, error) {
			return audit.Search(ctx, d.opts.Audit, f, nil)
		},
	}
}
