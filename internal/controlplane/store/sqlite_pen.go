package store

import (
	"context"
	"database/sql"
	"sync"
)

// pen is for the one who writes, of this process. Without it all who wait for
// SQLite's lock would wait on a connection each, asking again and again: those who
// only read would get none, and whoever waits longest would not be the next.
type pen chan struct{}

func newPen() pen { return make(pen, 1) }

// take waits for the pen and begins a transaction. The end of that gives it back.
func (p pen) take(ctx context.Context, db *sql.DB) (*turn, error) {
	select {
	case p <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	release := sync.OnceFunc(func() { <-p })
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		release()
		return nil, err
	}
	return &turn{tx: tx, release: release}, nil
}
