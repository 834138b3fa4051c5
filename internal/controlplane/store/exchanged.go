package store

import (
	"context"
	"time"
)

// exchangedTable has the statements about ID tokens that were exchanged for certificates.
type exchangedTable struct{ table }

// TakeIDToken records that an ID token was exchanged for a certificate of a key. It returns false
// if that was for another key before.
func (q exchangedTable) TakeIDToken(ctx context.Context, digest, key string, expires time.Time) (bool, error) {
	_, err := q.exec(ctx, `INSERT INTO exchanged_tokens (digest, key_print, expires_at) VALUES ($1, $2, $3) ON CONFLICT (digest) DO NOTHING`,
		digest, key, micros(expires))
	if err != nil {
		return false, err
	}
	first, err := one(q.q.QueryRowContext(ctx, `SELECT key_print FROM exchanged_tokens WHERE digest = $1`, digest),
		func(row scanner, s *string) error { return row.Scan(s) })
	return first == key, err
}

// ForgetIDTokens deletes the records of ID tokens that expired before that time.
func (q exchangedTable) ForgetIDTokens(ctx context.Context, before time.Time) error {
	_, err := q.exec(ctx, `DELETE FROM exchanged_tokens WHERE expires_at < $1`, micros(before))
	return err
}
