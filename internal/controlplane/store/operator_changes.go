package store

import (
	"context"
	"time"
)

// OperatorChange is a change that an operator sent with an Idempotency-Key.
type OperatorChange struct {
	Operator, Key string
	// Digest identifies what was sent.
	Digest string
	// Answer is the body of the answer, valid once DoneAt is set.
	Answer          string
	BegunAt, DoneAt time.Time
}

const operatorChangeColumns = `operator, key, digest, answer, begun_at, done_at`

func scanOperatorChange(row scanner, c *OperatorChange) error {
	return row.Scan(&c.Operator, &c.Key, &c.Digest, &c.Answer, moment{&c.BegunAt}, moment{&c.DoneAt})
}

// operatorChangeTable has the statements about changes with an Idempotency-Key.
type operatorChangeTable struct{ table }

// BeginOperatorChange records a change. It returns false if the operator has sent one with that
// key.
func (q operatorChangeTable) BeginOperatorChange(ctx context.Context, c OperatorChange) (bool, error) {
	n, err := q.exec(ctx, `INSERT INTO operator_changes (`+operatorChangeColumns+`) VALUES ($1, $2, $3, $4, $5, $6)
		ON CONFLICT (operator, key) DO NOTHING`, c.Operator, c.Key, c.Digest, c.Answer, micros(c.BegunAt), micros(c.DoneAt))
	return n > 0, err
}

// OperatorChange returns a change by its operator and key.
func (q operatorChangeTable) OperatorChange(ctx context.Context, operator, key string) (OperatorChange, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+operatorChangeColumns+` FROM operator_changes WHERE operator = $1 AND key = $2`, operator, key), scanOperatorChange)
}

// EndOperatorChange records the answer to a change.
func (q operatorChangeTable) EndOperatorChange(ctx context.Context, operator, key, answer string, at time.Time) error {
	return q.execOne(ctx, `UPDATE operator_changes SET answer = $1, done_at = $2 WHERE operator = $3 AND key = $4`, answer, micros(at), operator, key)
}

// ForgetOperatorChange deletes a change that was not carried out.
func (q operatorChangeTable) ForgetOperatorChange(ctx context.Context, operator, key string) error {
	_, err := q.exec(ctx, `DELETE FROM operator_changes WHERE operator = $1 AND key = $2`, operator, key)
	return err
}

// ForgetOperatorChanges deletes changes that began before that time.
func (q operatorChangeTable) ForgetOperatorChanges(ctx context.Context, before time.Time) error {
	_, err := q.exec(ctx, `DELETE FROM operator_changes WHERE begun_at < $1`, micros(before))
	return err
}
