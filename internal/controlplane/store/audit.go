package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// AuditLength is how many records of each agent's audit log are kept.
const AuditLength = 20000

// AuditLine is a record of an agent's audit log, as the agent keeps it.
type AuditLine struct {
	Place  int64 // increases along the log; numbers begin again if the agent's log does
	Seq    int64
	Hash   string
	Line   string
	Broken bool // it does not follow the one before
	At     time.Time
}

// auditTable has the statements about the audit logs of agents.
type auditTable struct{ table }

// AuditHead returns the last record of an agent's audit log; the zero value if there is none.
func (q auditTable) AuditHead(ctx context.Context, agentID string) (AuditLine, error) {
	var l AuditLine
	err := q.q.QueryRowContext(ctx, `SELECT seq, hash FROM audit WHERE agent_id = $1 ORDER BY id DESC LIMIT 1`, agentID).Scan(&l.Seq, &l.Hash)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return l, fmt.Errorf("database: audit: %w", err)
	}
	return l, nil
}

// AddAudit appends records and deletes those that are too old. It drops records of deleted agents.
func (t *Tx) AddAudit(ctx context.Context, agentID string, lines []AuditLine) error {
	for _, l := range lines {
		broken := 0
		if l.Broken {
			broken = 1
		}
		_, err := t.exec(ctx, `INSERT INTO audit (agent_id, seq, hash, line, broken, at)
			SELECT id, $1, $2, $3, $4, $5 FROM agents WHERE id = $6`, l.Seq, l.Hash, l.Line, broken, micros(l.At), agentID)
		if err != nil {
			return err
		}
	}
	_, err := t.exec(ctx, `DELETE FROM audit WHERE agent_id = $1 AND id <= (
		SELECT id FROM audit WHERE agent_id = $1 ORDER BY id DESC LIMIT 1 OFFSET $2)`, agentID, AuditLength)
	return err
}

// AuditBack lists records of an agent's audit log before a place, newest first.
func (q auditTable) AuditBack(ctx context.Context, agentID string, place int64, limit int) ([]AuditLine, error) {
	return all(ctx, q.q, scanAudit, `SELECT `+auditColumns+` FROM audit WHERE agent_id = $1 AND id < $2 ORDER BY id DESC LIMIT $3`,
		agentID, place, limit)
}

// AuditAhead lists records of an agent's audit log from a place on, oldest first.
func (q auditTable) AuditAhead(ctx context.Context, agentID string, place int64, limit int) ([]AuditLine, error) {
	return all(ctx, q.q, scanAudit, `SELECT `+auditColumns+` FROM audit WHERE agent_id = $1 AND id >= $2 ORDER BY id LIMIT $3`,
		agentID, place, limit)
}

const auditColumns = `id, seq, hash, line, broken, at`

func scanAudit(row scanner, l *AuditLine) error {
	return row.Scan(&l.Place, &l.Seq, &l.Hash, &l.Line, &l.Broken, moment{&l.At})
}
