package web

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
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
var auditFields = []string{"by", "app", "command", "outcome", "from", "to"}

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
	f = audit.Filter{By: query.Get("by"), App: query.Get("app"), Command: query.Get("command")}
	for _, field := range auditFields {
		if len(query.Get(field)) > maxAuditValue {
			return f, fmt.Sprintf("No record has so long a value of %s.", field)
		}
	}
	for _, outcome := range audit.Outcomes {
		if string(outcome) == query.Get("outcome") {
			f.Outcome = outcome
		}
	}
	if string(f.Outcome) != query.Get("outcome") {
		return f, fmt.Sprintf("No call has the outcome %q.", query.Get("outcome"))
	}
	for field, at := range map[string]*time.Time{"from": &f.From, "to": &f.To} {
		var ok bool
		if *at, ok = moment(query.Get(field)); !ok {
			return f, fmt.Sprintf("%q is not a time. Write it as 2006-01-02T15:04, in UTC.", query.Get(field))
		}
	}
	f.Before, _ = strconv.ParseInt(query.Get("before"), 10, 64) // 0 for what is not a number: the newest
	f.Before = max(f.Before, 0)
	return f, ""
}

// maxAuditValue bounds a value of a filter, as the operator API does for the shortest.
const maxAuditValue = 256

// moment parses a time as a browser's field or a person writes it. An empty text gives the zero
// time.
func moment(text string) (time.Time, bool) {
	if text == "" {
		return time.Time{}, true
	}
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
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
