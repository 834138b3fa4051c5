package store

import (
	"context"
	"maps"
	"slices"
	"time"
)

// Runner is a Runner with a certificate.
type Runner struct {
	Name   string `json:"name"`
	Serial string `json:"serial"` // hexadecimal, of its certificate; renewals keep it
	// Agents selects those that it may see and reach, by label; empty is all.
	Agents    string    `json:"agents,omitempty"`
	CreatedAt time.Time `json:"createdAt"`
	// ExpiresAt is when its newest certificate ends; zero if it never had one.
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	RevokedAt time.Time `json:"revokedAt,omitzero"`
	// TTL is how long each of its certificates is valid.
	TTL time.Duration `json:"-"`
	// OpenID is whose ID tokens it gets its certificates for; nil for a Runner with credentials.
	OpenID *Binding `json:"openid,omitempty"`
}

// Binding is the OpenID Connect identity of a Runner without credentials.
type Binding struct {
	Issuer   string            `json:"issuer" doc:"URL of the issuer, as ID tokens have it in iss."`
	Audience string            `json:"audience" doc:"What ID tokens must have in aud."`
	Claims   map[string]string `json:"claims" doc:"What ID tokens must have in other claims."`
}

// String returns the binding for people; empty for none.
func (b *Binding) String() string {
	if b == nil {
		return ""
	}
	text := b.Issuer
	for _, name := range slices.Sorted(maps.Keys(b.Claims)) {
		text += " " + name + "=" + b.Claims[name]
	}
	return text
}

// State returns what the Runner's certificate is at that time. A Runner with a Binding gets one
// whenever it needs one.
func (r Runner) State(now time.Time) string {
	if r.OpenID != nil && r.RevokedAt.IsZero() {
		return CertificateValid
	}
	return certificateState(r.RevokedAt, r.ExpiresAt, now)
}

const runnerSelect = `SELECT r.name, r.serial, r.agents, r.created_at, r.expires_at, r.ttl, r.openid, COALESCE(c.revoked_at, 0)
	FROM runners r LEFT JOIN revoked_certificates c ON c.serial = r.serial `

func scanRunner(row scanner, r *Runner) error {
	var ttl int64
	err := row.Scan(&r.Name, &r.Serial, &r.Agents, moment{&r.CreatedAt}, moment{&r.ExpiresAt}, &ttl, document{&r.OpenID}, moment{&r.RevokedAt})
	r.TTL = time.Duration(ttl) * time.Microsecond
	return err
}

// runnerTable has the statements about Runners.
type runnerTable struct{ table }

// Runner finds a Runner by name.
func (q runnerTable) Runner(ctx context.Context, name string) (Runner, error) {
	return one(q.q.QueryRowContext(ctx, runnerSelect+`WHERE r.name = $1`, name), scanRunner)
}

// Runners lists all Runners by name.
func (q runnerTable) Runners(ctx context.Context) ([]Runner, error) {
	return all(ctx, q.q, scanRunner, runnerSelect+`ORDER BY r.name`)
}

// PutRunner adds a Runner or gives it another certificate.
func (q runnerTable) PutRunner(ctx context.Context, r Runner) error {
	_, err := q.exec(ctx, `INSERT INTO runners (name, serial, agents, created_at, expires_at, ttl, openid) VALUES ($1, $2, $3, $4, $5, $6, $7)
		ON CONFLICT (name) DO UPDATE SET serial = excluded.serial, agents = excluded.agents, created_at = excluded.created_at, expires_at = excluded.expires_at,
			ttl = excluded.ttl, openid = excluded.openid`,
		r.Name, r.Serial, r.Agents, micros(r.CreatedAt), micros(r.ExpiresAt), r.TTL.Microseconds(), asJSON(r.OpenID))
	return err
}

// RevokeCertificate refuses a Runner's certificate from now on.
func (q runnerTable) RevokeCertificate(ctx context.Context, r Runner, at time.Time) error {
	_, err := q.exec(ctx, `INSERT INTO revoked_certificates (serial, runner, revoked_at, expires_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (serial) DO NOTHING`, r.Serial, r.Name, micros(at), micros(r.ExpiresAt))
	return err
}

// RevokedRunners lists the Runners whose current certificate is revoked, expired or not.
func (q runnerTable) RevokedRunners(ctx context.Context) ([]string, error) {
	return all(ctx, q.q, func(row scanner, s *string) error { return row.Scan(s) },
		`SELECT r.name FROM runners r JOIN revoked_certificates c ON c.serial = r.serial ORDER BY r.name`)
}

// RevokedSerials lists the revoked Runner certificates that have not expired.
func (q runnerTable) RevokedSerials(ctx context.Context, now time.Time) ([]string, error) {
	return all(ctx, q.q, func(row scanner, s *string) error { return row.Scan(s) },
		`SELECT serial FROM revoked_certificates WHERE expires_at > $1 ORDER BY serial`, micros(now))
}
