package store

import (
	"context"
	"errors"
)

// operatorAuditTable has the statements about the operators' audit log.
type operatorAuditTable struct{ table }

// AddOperatorAudit adds a batch by the number of its first record. It returns false if there is one
// of that number.
func (q operatorAuditTable) AddOperatorAudit(ctx context.Context, first int64, text string) (bool, error) {
	n, err := q.exec(ctx, `INSERT INTO operator_audit (first, text) VALUES ($1, $2) ON CONFLICT (first) DO NOTHING`, first, text)
	return n > 0, err
}

// OperatorAudit returns a batch; an empty text if there is none.
func (q operatorAuditTable) OperatorAudit(ctx context.Context, first int64) (string, error) {
	text, err := one(q.q.QueryRowContext(ctx, `SELECT text FROM operator_audit WHERE first = $1`, first),
		func(row scanner, s *string) error { return row.Scan(s) })
	if errors.Is(err, ErrNotFound) {
		return "", nil
	}
	return text, err
}

// OperatorAuditNumbers lists the numbers of the batches, in order.
func (q operatorAuditTable) OperatorAuditNumbers(ctx context.Context) ([]int64, error) {
	return all(ctx, q.q, func(row scanner, n *int64) error { return row.Scan(n) }, `SELECT first FROM operator_audit ORDER BY first`)
}

// DeleteOperatorAudit deletes a batch, if it is there.
func (q operatorAuditTable) DeleteOperatorAudit(ctx context.Context, first int64) error {
	_, err := q.exec(ctx, `DELETE FROM operator_audit WHERE first = $1`, first)
	return err
}
