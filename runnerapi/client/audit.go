package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Audit are the calls about what Runners did.
type Audit struct{ *core }

// Find returns the newest calls in the agent's audit log that a filter selects.
func (a Audit) Find(ctx context.Context, f runnerapi.AuditFilter) (runnerapi.AuditList, error) {
	r := newRequest("list-audit")
	r.query = map[string]string{}
	for name, value := range map[string]string{
		"by": f.By, "command": f.Command, "namespace": f.Namespace, "app": f.App, "outcome": string(f.Outcome), "text": f.Text, "since": f.Since, "until": f.Until,
	} {
		if value != "" {
			r.query[name] = value
		}
	}
	for name, value := range map[string]int64{"before": f.Before, "limit": int64(f.Limit)} {
		if value != 0 {
			r.query[name] = strconv.FormatInt(value, 10)
		}
	}
	return fetch[runnerapi.AuditList](ctx, a.core, r)
}

// List returns at most limit records of the agent's audit log after a record's number, oldest
// first, for a collector of the whole log.
func (a Audit) List(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error) {
	r := newRequest("list-audit")
	r.query = map[string]string{"after": strconv.FormatInt(after, 10), "limit": strconv.Itoa(limit)}
	return fetch[runnerapi.AuditList](ctx, a.core, r)
}
