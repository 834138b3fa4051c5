package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Audit reads the agent's audit log after a record's number, oldest first, at
// most limit records; the newest ones when after is negative.
func (c *Client) Audit(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error) {
	var list runnerapi.AuditList
	r := newRequest("list-audit")
	r.query = map[string]string{"after": strconv.FormatInt(after, 10), "limit": strconv.Itoa(limit)}
	_, err := c.call(ctx, r, &list)
	return list, err
}
