package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	// claimPatience is how long the server may take to notice that a process was
	// killed which had the claim.
	claimPatience = 5 * time.Second
	claimEvery    = 100 * time.Millisecond
	// pingEvery is how often a connection on which nothing comes is tried.
	pingEvery      = 15 * time.Second
	reconnectEvery = time.Second
)

// ErrServed means that another control plane serves the database.
var ErrServed = errors.New("another control plane serves this database; stop that one, " +
	"or give all of them the same --ca-key-file: docs/operator/database.md says how several serve one database")

// claim is what a session holds of the database.
type claim string

// A claim is taken with one of PostgreSQL's functions.
const (
	noClaim claim = ""
	sole    claim = "pg_try_advisory_lock"        // no other has one
	beside  claim = "pg_try_advisory_lock_shared" // others have the same
)

// session is a separate connection: what it holds, and what it hears, ends with it.
type session struct {
	conn *pgx.Conn
	news bool // another process wrote since we last looked
}

// connect opens a session that hears of others' changes.
func (e *postgres) connect(ctx context.Context) (*session, error) {
	s := &session{}
	cfg := e.current()
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
		s.news = s.news || n.Payload != e.me
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	var err error
	if s.conn, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		return nil, err
	}
	if _, err = s.conn.Exec(ctx, `LISTEN `+channelNews); err != nil {
		return nil, errors.Join(err, s.close(ctx))
	}
	return s, nil
}

func (s *session) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), connectTimeout)
	defer cancel()
	return s.conn.Close(ctx)
}

// take takes the lock of those that serve, which the server releases when the
// connection ends.
func (s *session) take(ctx context.Context, what claim) error {
	deadline := time.Now().Add(claimPatience)
	for {
		var ours bool
		asking, cancel := context.WithTimeout(ctx, queryTimeout)
		err := s.conn.QueryRow(asking, `SELECT `+string(what)+`($1, $2)`, lockSpace, lockServer).Scan(&ours)
		cancel()
		switch {
		case err != nil || ours:
			return err
		case time.Now().After(deadline):
			return ErrServed
		}
		retry.Wait(ctx, claimEvery)
	}
}

func (e *postgres) serve(ctx context.Context, shared bool) error {
	what := sole
	if shared {
		what = beside
	}
	s, err := e.connect(ctx)
	if err != nil {
		return fmt.Errorf("database: %w", err)
	}
	if err := s.take(ctx, what); err != nil {
		return errors.Join(fmt.Errorf("database: %w", err), s.close(ctx))
	}
	e.session, e.claim = s, what
	return nil
}

// watch listens for changes of others. It reopens a lost connection, and claims again what that
// held. It fails only if another process has claimed it meanwhile.
func (e *postgres) watch(ctx context.Context, every time.Duration, changed func()) error {
	for ctx.Err() == nil {
		err := e.reconnect(ctx)
		if err == nil {
			changed() // something may have been missed
			err = e.session.listen(ctx, every, changed)
		}
		if errors.Is(err, ErrServed) {
			return err
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // told to stop
		}
		e.log.Warn().Err(err).Msg("lost the connection for database notifications; reconnecting")
		if e.session != nil {
			_ = e.session.close(ctx) // it is lost
			e.session = nil
		}
		retry.Wait(ctx, reconnectEvery)
	}
	return nil
}

// reconnect makes sure of a session, with the claim if there was one.
func (e *postgres) reconnect(ctx context.Context) error {
	if e.session != nil {
		return nil
	}
	s, err := e.connect(ctx)
	if err != nil {
		return err
	}
	if e.claim != noClaim {
		if err := s.take(ctx, e.claim); err != nil {
			return errors.Join(err, s.close(ctx))
		}
	}
	e.session = s
	return nil
}

// listen calls changed for news, which it gathers for that time, until the
// connection is lost or the context ends.
func (s *session) listen(ctx context.Context, every time.Duration, changed func()) error {
	for {
		pinging, cancel := context.WithTimeout(ctx, queryTimeout)
		err := s.conn.Ping(pinging) // takes in what has come
		cancel()
		if err != nil {
			return err
		}
		if s.news {
			s.news = false
			changed()
			retry.Wait(ctx, every)
			continue
		}
		waiting, cancel := context.WithTimeout(ctx, pingEvery)
		err = s.conn.PgConn().WaitForNotification(waiting)
		cancel()
		if err != nil && (ctx.Err() != nil || !pgconn.Timeout(err)) {
			return err
		}
	}
}
