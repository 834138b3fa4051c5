package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// leadEvery is how often a standby process tries to lead. Waiting for the lock in the database
	// would keep the database from cleaning up old rows.
	leadEvery = 500 * time.Millisecond
	// leadPing is how often the leader checks that the lock is still there, and leadPatience how
	// long the answer may take.
	leadPing     = 2 * time.Second
	leadPatience = 3 * time.Second
)

// lead holds an advisory lock on a separate connection: the server releases it when the process
// dies. When the connection becomes uncertain, it ends the context of what runs.
func (e *postgres) lead(ctx context.Context, lead func(context.Context)) error {
	for ctx.Err() == nil {
		s, err := e.connectLeader(ctx)
		if err != nil {
			if ctx.Err() == nil {
				e.log.Warn().Err(err).Msg("failed to join the leader election; retrying")
			}
			retry.Wait(ctx, reconnectEvery)
			continue
		}
		if s.await(ctx) {
			s.term(ctx, lead)
		}
		_ = s.close(ctx) // which releases the lock
	}
	return nil
}

func (e *postgres) connectLeader(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, e.current())
	if err != nil {
		return nil, err
	}
	return &session{conn: conn}, nil
}

// await returns true once the lock is ours, and false if the connection is lost or the context
// ends.
func (s *session) await(ctx context.Context) bool {
	for ctx.Err() == nil {
		var ours bool
		asking, cancel := context.WithTimeout(ctx, leadPatience)
		err := s.conn.QueryRow(asking, `SELECT pg_try_advisory_lock($1, $2)`, lockSpace, lockLeader).Scan(&ours)
		cancel()
		if err != nil || ours {
			return err == nil
		}
		retry.Wait(ctx, leadEvery)
	}
	return false
}

// term runs lead until it returns or the connection is lost.
func (s *session) term(ctx context.Context, lead func(context.Context)) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	done := make(chan struct{})
	go func() {
		defer close(done)
		lead(ctx)
	}()
	defer func() { end(); <-done }()
	ticker := time.NewTicker(leadPing)
	defer ticker.Stop()
	for {
		select {
		case <-done:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		pinging, cancel := context.WithTimeout(context.WithoutCancel(ctx), leadPatience)
		err := s.conn.Ping(pinging)
		cancel()
		if err != nil {
			return
		}
	}
}
