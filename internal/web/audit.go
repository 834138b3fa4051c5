package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// AuditSearch searches an audit log for pages and exports.
type AuditSearch struct {
	Who  string // what sends the calls: Runner or Operator
	Name string // of exported files
	// Empty says what the log gets, while it has nothing.
	Empty string
	Read  func(ctx context.Context, f audit.Filter) (audit.Found, error)
	// Item returns a call as the JSON export has it; nil for the call itself.
	Item func(audit.Call) any
}

// AuditLog is what a page shows of an audit log: components "audit-search" and "audit".
type AuditLog struct {
	AuditSearch
	audit.Found
	Wrong string // why nothing can match; empty if something can
	query url.Values
}

// auditFields are the parameters that select calls.
var auditFields = []string{"by", "command", "namespace", "app", "outcome", "text", "since", "until"}

// Page returns what a page shows for its query.
func (s AuditSearch) Page(ctx context.Context, query url.Values) (AuditLog, error) {
	log := AuditLog{AuditSearch: s, query: query}
	filter, wrong := auditFilter(query)
	filter.Limit = PageSize
	if log.Wrong = wrong; wrong != "" {
		return log, nil
	}
	var err error
	log.Found, err = s.Read(ctx, filter)
	return log, err
}

// auditFilter reads a filter from a query. wrong says which value no call can have.
func auditFilter(query url.Values) (f audit.Filter, wrong string) {
	f = audit.Filter{
		By: query.Get("by"), Command: query.Get("command"), Namespace: query.Get("namespace"), App: query.Get("app"),
		Outcome: audit.Outcome(query.Get("outcome")), Text: query.Get("text"), Since: query.Get("since"), Until: query.Get("until"),
	}
	f.Before, _ = strconv.ParseInt(query.Get("before"), 10, 64) // 0 for what is not a number: the newest
	f.Before = max(f.Before, 0)
	if p, ok := errors.AsType[*problem.Error](audit.Check(f)); ok {
		return f, fmt.Sprintf("%s. Fix: %s.", p.Detail, p.Fix)
	}
	return f, ""
}

// Value returns what a field of the form has.
func (l AuditLog) Value(field string) string { return l.query.Get(field) }

// Filtered reports whether some calls are left out.
func (l AuditLog) Filtered() bool {
	return slices.ContainsFunc(auditFields, func(f string) bool { return l.query.Get(f) != "" })
}

// Newest returns the query of the first page; empty for that page itself.
func (l AuditLog) Newest() string {
	if l.query.Get("before") == "" {
		return ""
	}
	return l.with("", "")
}

// Next returns the query of the page with older calls; empty if there is none.
func (l AuditLog) Next() string {
	if l.Older == 0 {
		return ""
	}
	return l.with("before", strconv.FormatInt(l.Older, 10))
}

// Export returns the query of a file with the same filter.
func (l AuditLog) Export(format string) string { return l.with("format", format) }

// with returns the query of the filter, with another field.
func (l AuditLog) with(field, value string) string {
	q := url.Values{}
	for _, f := range auditFields {
		if v := l.query.Get(f); v != "" {
			q.Set(f, v)
		}
	}
	if field != "" {
		q.Set(field, value)
	}
	return "?" + q.Encode()
}

// Exporting reports whether a request is for a file and not for the page.
func (s AuditSearch) Exporting(r *http.Request) bool {
	return slices.Contains([]string{"csv", "json"}, r.URL.Query().Get("format"))
}
