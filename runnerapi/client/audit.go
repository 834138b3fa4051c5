package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Audit are the calls about what Runners did.
type Audit struct{ *core }

// List reads the agent's audit log after a record's number, oldest first, at
// most limit records; the newest ones when after is negative.
func (a Audit) List(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error) {
	r := newRequest("list-audit")
	r.query = map[string]string{"after": strconv.FormatInt(after, 10), "limit": strconv.Itoa(limit)}
	return fetch[runnerapi.AuditList](ctx, a.core, r)
}
