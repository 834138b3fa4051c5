package store

import (
	"context"
	"strconv"
	"strings"
)

// FoundApp is an App as its agent last reported it.
type FoundApp struct {
	AgentID   string `json:"agentId"`
	AgentName string `json:"agentName"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     string `json:"state" enum:"progressing,healthy,degraded,failed"`
}

// FindApps returns the Apps of all agents whose name or namespace has each word of a text, in any
// case; at most limit.
func (q timelineTable) FindApps(ctx context.Context, search string, limit int) ([]FoundApp, error) {
	where, args := "", []any{limit}
	for word := range strings.FieldsSeq(search) {
		args = append(args, "%"+literal(strings.ToLower(word))+"%")
		where += ` AND LOWER(last.namespace || '/' || last.app) LIKE ` + "$" + strconv.Itoa(len(args)) + ` ESCAPE '\'`
	}
	return all(ctx, q.q, scanFoundApp, `SELECT agents.id, agents.name, last.namespace, last.app, last.type
		FROM timeline AS last JOIN agents ON agents.id = last.agent_id
		WHERE last.type LIKE 'app.%' AND last.type <> 'app.removed' AND agents.revoked_at = 0`+where+`
		AND NOT EXISTS (SELECT 1 FROM timeline AS newer WHERE newer.agent_id = last.agent_id AND newer.namespace = last.namespace
			AND newer.app = last.app AND newer.type LIKE 'app.%' AND newer.sequence > last.sequence)
		ORDER BY last.app, last.namespace, agents.name LIMIT $1`, args...)
}

func scanFoundApp(row scanner, a *FoundApp) error {
	err := row.Scan(&a.AgentID, &a.AgentName, &a.Namespace, &a.Name, &a.State)
	a.State = strings.TrimPrefix(a.State, "app.")
	return err
}
