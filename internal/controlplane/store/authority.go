package store

import "context"

// Sealed is the certificate authority that control planes share, encrypted and in
// text. The version counts its changes.
type Sealed struct {
	Version int64
	Text    string
}

// authorityTable has the statements about the encrypted CA.
type authorityTable struct{ table }

// Authority returns ErrNotFound if the CA is not in the database.
func (q authorityTable) Authority(ctx context.Context) (Sealed, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT version, sealed FROM authority WHERE name = 'ca'`),
		func(row scanner, s *Sealed) error { return row.Scan(&s.Version, &s.Text) })
}

// MakeAuthority puts the first one in, unless there is one.
func (q authorityTable) MakeAuthority(ctx context.Context, s Sealed) error {
	_, err := q.exec(ctx, `INSERT INTO authority (name, version, sealed) VALUES ('ca', $1, $2) ON CONFLICT (name) DO NOTHING`, s.Version, s.Text)
	return err
}

// ReplaceAuthority replaces the CA that has the previous version. It returns ErrNotFound if that is
// no longer there.
func (q authorityTable) ReplaceAuthority(ctx context.Context, s Sealed) error {
	return q.execOne(ctx, `UPDATE authority SET version = $1, sealed = $2 WHERE name = 'ca' AND version = $1 - 1`, s.Version, s.Text)
}
