package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Audit reads the agent's audit log after a record's number, oldest first, at
// most limit records; the newest ones when after is negative.
func (c *Client) Audit(ctx context.Context, after int64, limit int) (runnerapi.AuditList, error) {
	var list runnerapi.AuditList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: "/audit", query: map[string]string{
		"after": strconv.FormatInt(after, 10), "limit": strconv.Itoa(limit),
	}}, &list)
	return list, err
}
