package store

import (
	"context"
	"time"
)

// ActingOperator is an operator who acts as a Runner in the console.
type ActingOperator struct {
	Operator string    `json:"operator"`
	Runner   string    `json:"runner"`
	SetAt    time.Time `json:"setAt"`
}

func scanActing(row scanner, a *ActingOperator) error {
	return row.Scan(&a.Operator, &a.Runner, moment{&a.SetAt})
}

// actingTable has the statements about operators who act as Runners.
type actingTable struct{ table }

// ActingOperator finds the Runner as which an operator acts.
func (q actingTable) ActingOperator(ctx context.Context, operator string) (ActingOperator, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT operator, runner, set_at FROM acting_operators WHERE operator = $1`, operator), scanActing)
}

// ActingOperators lists the operators who act as Runners, by name.
func (q actingTable) ActingOperators(ctx context.Context) ([]ActingOperator, error) {
	return all(ctx, q.q, scanActing, `SELECT operator, runner, set_at FROM acting_operators ORDER BY operator`)
}

// PutActingOperator has an operator act as a Runner, and as no other one.
func (q actingTable) PutActingOperator(ctx context.Context, a ActingOperator) error {
	_, err := q.exec(ctx, `INSERT INTO acting_operators (operator, runner, set_at) VALUES ($1, $2, $3)
		ON CONFLICT (operator) DO UPDATE SET runner = excluded.runner, set_at = excluded.set_at`, a.Operator, a.Runner, micros(a.SetAt))
	return err
}

// DeleteActingOperator has an operator act as no Runner. It returns false if that was so.
func (q actingTable) DeleteActingOperator(ctx context.Context, operator string) (bool, error) {
	n, err := q.exec(ctx, `DELETE FROM acting_operators WHERE operator = $1`, operator)
	return n > 0, err
}
