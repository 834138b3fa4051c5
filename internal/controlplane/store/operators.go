package store

import (
	"context"
	"time"
)

// Operator is a person, or a program of one, with a certificate for the operator API.
type Operator struct {
	Name      string    `json:"name"`
	Role      string    `json:"role"`
	Serial    string    `json:"serial"` // hexadecimal, of its certificate
	Key       string    `json:"key"`    // fingerprint of the certificate's key
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
}

// State returns what the operator's certificate is at that time.
func (o Operator) State(now time.Time) string { return certificateState(o.RevokedAt, o.ExpiresAt, now) }

// The states of the certificate of an operator or a Runner.
const (
	CertificateValid   = "valid"
	CertificateRevoked = "revoked"
	CertificateExpired = "expired"
)

func certificateState(revokedAt, expiresAt, now time.Time) string {
	switch {
	case !revokedAt.IsZero():
		return CertificateRevoked
	case now.After(expiresAt):
		return CertificateExpired
	}
	return CertificateValid
}

const operatorColumns = `name, role, serial, key_print, created_at, expires_at, revoked_at`

func scanOperator(row scanner, o *Operator) error {
	return row.Scan(&o.Name, &o.Role, &o.Serial, &o.Key, moment{&o.CreatedAt}, moment{&o.ExpiresAt}, moment{&o.RevokedAt})
}

// operatorTable has the statements about operators.
type operatorTable struct{ table }

// Operator finds an operator by name.
func (q operatorTable) Operator(ctx context.Context, name string) (Operator, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+operatorColumns+` FROM operators WHERE name = $1`, name), scanOperator)
}

// Operators lists all operators by name, including revoked ones.
func (q operatorTable) Operators(ctx context.Context) ([]Operator, error) {
	return all(ctx, q.q, scanOperator, `SELECT `+operatorColumns+` FROM operators ORDER BY name`)
}

// PutOperator adds an operator or replaces the one with that name.
func (q operatorTable) PutOperator(ctx context.Context, o Operator) error {
	_, err := q.exec(ctx, `INSERT INTO operators (`+operatorColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (name) DO UPDATE SET role = excluded.role, serial = excluded.serial, key_print = excluded.key_print,
			created_at = excluded.created_at, expires_at = excluded.expires_at, revoked_at = excluded.revoked_at`,
		o.Name, o.Role, o.Serial, o.Key, micros(o.CreatedAt), micros(o.ExpiresAt), micros(o.RevokedAt))
	return err
}
