package store

import (
	"context"
	"time"
)

// ConsoleSession is an operator's session in the console, or a code that opens one, once.
type ConsoleSession struct {
	// Digest is of the secret that the browser has.
	Digest string
	// Kind is ConsoleCode or ConsoleOpen.
	Kind string
	// Operator and Serial are the operator and the certificate that the session is bound to.
	Operator, Serial string
	// Role is set if the operator signed in by OpenID Connect. Serial is the digest of the settings
	// then.
	Role                 string
	CreatedAt, ExpiresAt time.Time
}

// The kinds of console sessions.
const (
	ConsoleCode = "code"
	ConsoleOpen = "open"
)

const consoleColumns = `digest, kind, operator, serial, role, created_at, expires_at`

func scanConsoleSession(row scanner, s *ConsoleSession) error {
	return row.Scan(&s.Digest, &s.Kind, &s.Operator, &s.Serial, &s.Role, moment{&s.CreatedAt}, moment{&s.ExpiresAt})
}

// consoleTable has the statements about sessions in the console.
type consoleTable struct{ table }

// InsertConsoleSession adds a session or a code.
func (q consoleTable) InsertConsoleSession(ctx context.Context, s ConsoleSession) error {
	_, err := q.exec(ctx, `INSERT INTO console_sessions (`+consoleColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)`,
		s.Digest, s.Kind, s.Operator, s.Serial, s.Role, micros(s.CreatedAt), micros(s.ExpiresAt))
	return err
}

// ConsoleSession finds a session or a code.
func (q consoleTable) ConsoleSession(ctx context.Context, kind, digest string) (ConsoleSession, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+consoleColumns+` FROM console_sessions WHERE kind = $1 AND digest = $2`, kind, digest), scanConsoleSession)
}

// TakeConsoleCode deletes a code and returns it: of two that take it, one gets ErrNotFound.
func (q consoleTable) TakeConsoleCode(ctx context.Context, digest string) (ConsoleSession, error) {
	return one(q.q.QueryRowContext(ctx, `DELETE FROM console_sessions WHERE kind = $1 AND digest = $2 RETURNING `+consoleColumns, ConsoleCode, digest), scanConsoleSession)
}

// EndConsoleSession deletes a session.
func (q consoleTable) EndConsoleSession(ctx context.Context, digest string) error {
	_, err := q.exec(ctx, `DELETE FROM console_sessions WHERE kind = $1 AND digest = $2`, ConsoleOpen, digest)
	return err
}

// ConsoleSessions lists the open sessions, by operator, the newest of each first.
func (q consoleTable) ConsoleSessions(ctx context.Context, now time.Time) ([]ConsoleSession, error) {
	return all(ctx, q.q, scanConsoleSession, `SELECT `+consoleColumns+` FROM console_sessions WHERE kind = $1 AND expires_at > $2
		ORDER BY operator, created_at DESC, digest`, ConsoleOpen, micros(now))
}

// EndConsoleSessions deletes an operator's sessions and codes. It returns how many sessions were
// open.
func (q consoleTable) EndConsoleSessions(ctx context.Context, operator string, now time.Time) (int, error) {
	if _, err := q.exec(ctx, `DELETE FROM console_sessions WHERE operator = $1 AND (kind = $2 OR expires_at <= $3)`, operator, ConsoleCode, micros(now)); err != nil {
		return 0, err
	}
	n, err := q.exec(ctx, `DELETE FROM console_sessions WHERE operator = $1`, operator)
	return int(n), err
}

// ForgetConsoleSessions deletes the sessions and codes that have expired, and those of an operator
// but the newest ones of a kind.
func (q consoleTable) ForgetConsoleSessions(ctx context.Context, now time.Time, operator, kind string, keep int) error {
	_, err := q.exec(ctx, `DELETE FROM console_sessions WHERE expires_at <= $1 OR operator = $2 AND kind = $3 AND digest NOT IN (
		SELECT digest FROM console_sessions WHERE operator = $2 AND kind = $3 ORDER BY created_at DESC, digest LIMIT $4)`,
		micros(now), operator, kind, keep)
	return err
}
