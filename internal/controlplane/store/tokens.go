package store

import (
	"context"
	"time"
)

// Token is an enrolment token without its secret.
type Token struct {
	ID     string            `json:"id"`
	Name   string            `json:"name,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Hash   string            `json:"-"`
	// Approve has a registration wait until the operator has approved it.
	Approve bool `json:"approve,omitempty"`
	// MaxUses of 0 means any number; a zero ExpiresAt means never.
	MaxUses   int       `json:"maxUses"`
	Uses      int       `json:"uses"`
	CreatedAt time.Time `json:"createdAt"`
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
	// Lifetime is what it was made with, for its successor; 0 means for ever.
	Lifetime   time.Duration `json:"-"`
	RevokedAt  time.Time     `json:"revokedAt,omitzero"`
	LastUsedAt time.Time     `json:"lastUsedAt,omitzero"`
	LastUsedBy string        `json:"lastUsedBy,omitempty"`
	// RotatedTo is the ID of its successor, and RotatedAt when this one ends for it.
	RotatedTo string    `json:"rotatedTo,omitempty"`
	RotatedAt time.Time `json:"rotatedAt,omitzero"`
	// Kubernetes is set for a token without a secret: agents present service-account tokens.
	Kubernetes *Kubernetes `json:"kubernetes,omitempty"`
}

// Kubernetes is the cluster whose service-account tokens stand for a secret.
type Kubernetes struct {
	Issuer   string `json:"issuer"`
	Audience string `json:"audience"`
	// ServiceAccount is NAMESPACE:NAME.
	ServiceAccount string `json:"serviceAccount"`
	// Keys is a JSON Web Key Set.
	Keys string `json:"jwks"`
}

// The states of a token.
const (
	TokenLive    = "live"
	TokenRevoked = "revoked"
	TokenRotated = "rotated"
	TokenExpired = "expired"
	TokenUsedUp  = "used up"
)

// State returns what the token allows at that time.
func (t *Token) State(now time.Time) string {
	switch {
	case !t.RevokedAt.IsZero():
		return TokenRevoked
	case t.RotatedTo != "" && !now.Before(t.RotatedAt):
		return TokenRotated
	case !t.ExpiresAt.IsZero() && now.After(t.ExpiresAt):
		return TokenExpired
	case t.MaxUses > 0 && t.Uses >= t.MaxUses:
		return TokenUsedUp
	}
	return TokenLive
}

const tokenColumns = `id, name, hash, labels, max_uses, uses, created_at, expires_at, revoked_at, last_used_at, last_used_by, approve, lifetime, rotated_to, rotated_at, kubernetes` //nolint:gosec // names of columns

func scanToken(row scanner, t *Token) error {
	var approve, lifetime int64
	err := row.Scan(&t.ID, &t.Name, &t.Hash, document{&t.Labels}, &t.MaxUses, &t.Uses,
		moment{&t.CreatedAt}, moment{&t.ExpiresAt}, moment{&t.RevokedAt}, moment{&t.LastUsedAt}, &t.LastUsedBy,
		&approve, &lifetime, &t.RotatedTo, moment{&t.RotatedAt}, document{&t.Kubernetes})
	t.Approve, t.Lifetime = approve != 0, time.Duration(lifetime)*time.Microsecond
	return err
}

// tokenTable has the statements about enrolment tokens.
type tokenTable struct{ table }

// CreateToken adds a token.
func (q tokenTable) CreateToken(ctx context.Context, t Token) error {
	approve := 0
	if t.Approve {
		approve = 1
	}
	_, err := q.exec(ctx, `INSERT INTO tokens (`+tokenColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`,
		t.ID, t.Name, t.Hash, asJSON(t.Labels), t.MaxUses, t.Uses,
		micros(t.CreatedAt), micros(t.ExpiresAt), micros(t.RevokedAt), micros(t.LastUsedAt), t.LastUsedBy,
		approve, t.Lifetime.Microseconds(), t.RotatedTo, micros(t.RotatedAt), asJSON(t.Kubernetes))
	return err
}

// Token finds a token by its ID.
func (q tokenTable) Token(ctx context.Context, id string) (Token, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+tokenColumns+` FROM tokens WHERE id = $1`, id), scanToken)
}

// Tokens lists all tokens, oldest first.
func (q tokenTable) Tokens(ctx context.Context) ([]Token, error) {
	return all(ctx, q.q, scanToken, `SELECT `+tokenColumns+` FROM tokens ORDER BY created_at, id`)
}

// UseToken records a use, and counts it unless it repeats an earlier one.
func (q tokenTable) UseToken(ctx context.Context, id, agentID string, at time.Time, counted bool) error {
	count := 0
	if counted {
		count = 1
	}
	return q.execOne(ctx, `UPDATE tokens SET uses = uses + $1, last_used_at = $2, last_used_by = $3 WHERE id = $4`,
		count, micros(at), agentID, id)
}

// RevokeToken ends a token. Ending it again keeps the first time.
func (q tokenTable) RevokeToken(ctx context.Context, id string, at time.Time) error {
	return q.execOne(ctx, `UPDATE tokens SET revoked_at = CASE WHEN revoked_at = 0 THEN $1 ELSE revoked_at END WHERE id = $2`, micros(at), id)
}

// RotateToken ends a token at that time in favour of another.
func (q tokenTable) RotateToken(ctx context.Context, id, successor string, at time.Time) error {
	return q.execOne(ctx, `UPDATE tokens SET rotated_to = $1, rotated_at = $2 WHERE id = $3`, successor, micros(at), id)
}
