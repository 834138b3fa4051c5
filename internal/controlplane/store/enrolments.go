package store

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// The states of an Enrolment.
const (
	EnrolmentPending  = "pending"
	EnrolmentApproved = "approved"
	EnrolmentDenied   = "denied"
)

// Enrolment is a registration that the operator decides on. It becomes an agent only when it is
// approved.
type Enrolment struct {
	// ID is the agent's, if its cluster has none already.
	ID      string `json:"id"`
	TokenID string `json:"token"`
	// Key is the fingerprint of the public key that is to be certified.
	Key        string `json:"key"`
	Name       string `json:"name"`
	ClusterUID string `json:"clusterUID"`
	// Address is where the request came from: the agent's, or that of a proxy before it.
	Address string `json:"address"`
	// Request is what the agent stated about itself, without the certificate request.
	Request controlapi.RegisterRequest `json:"-"`

	State     string    `json:"state"`
	Reason    string    `json:"reason,omitempty"` // the operator's reason for a denial
	AskedAt   time.Time `json:"askedAt"`
	LastAsked time.Time `json:"lastAskedAt"`
	DecidedAt time.Time `json:"decidedAt,omitzero"`
	// Replaces is the name of the agent that the cluster has already, by whose place the
	// new one comes. It is not stored.
	Replaces string `json:"replaces,omitempty"`
}

const enrolmentColumns = `id, token_id, key_print, name, cluster_uid, address, request, state, reason, asked_at, last_asked_at, decided_at`

func scanEnrolment(row scanner, e *Enrolment) error {
	return row.Scan(&e.ID, &e.TokenID, &e.Key, &e.Name, &e.ClusterUID, &e.Address, document{&e.Request}, &e.State, &e.Reason,
		moment{&e.AskedAt}, moment{&e.LastAsked}, moment{&e.DecidedAt})
}

// enrolmentTable has the statements about registrations that wait.
type enrolmentTable struct{ table }

// EnrolmentOf returns the registration of a token and a key.
func (q enrolmentTable) EnrolmentOf(ctx context.Context, tokenID, key string) (Enrolment, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+enrolmentColumns+` FROM enrolments WHERE token_id = $1 AND key_print = $2`, tokenID, key), scanEnrolment)
}

// Enrolments lists all, those that have waited longest first, decided ones included.
func (q enrolmentTable) Enrolments(ctx context.Context) ([]Enrolment, error) {
	return all(ctx, q.q, scanEnrolment, `SELECT `+enrolmentColumns+` FROM enrolments ORDER BY asked_at, id`)
}

// PendingEnrolments returns how many registrations with a token wait that began after that time.
func (q enrolmentTable) PendingEnrolments(ctx context.Context, tokenID string, after time.Time) (int, error) {
	var n int
	err := q.q.QueryRowContext(ctx, `SELECT COUNT(*) FROM enrolments WHERE token_id = $1 AND state = $2 AND asked_at > $3`, tokenID, EnrolmentPending, micros(after)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("database: enrolments: %w", err)
	}
	return n, nil
}

// InsertEnrolment adds one.
func (q enrolmentTable) InsertEnrolment(ctx context.Context, e Enrolment) error {
	_, err := q.exec(ctx, `INSERT INTO enrolments (`+enrolmentColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)`,
		e.ID, e.TokenID, e.Key, e.Name, e.ClusterUID, e.Address, asJSON(e.Request), e.State, e.Reason,
		micros(e.AskedAt), micros(e.LastAsked), micros(e.DecidedAt))
	return err
}

// UpdateEnrolment writes what changes with another request and with the decision. The rest stays as
// it was shown to the operator.
func (q enrolmentTable) UpdateEnrolment(ctx context.Context, e Enrolment) error {
	return q.execOne(ctx, `UPDATE enrolments SET address = $1, state = $2, reason = $3, last_asked_at = $4, decided_at = $5 WHERE id = $6`,
		e.Address, e.State, e.Reason, micros(e.LastAsked), micros(e.DecidedAt), e.ID)
}

// DeleteEnrolment deletes a registration. A missing one is not an error.
func (q enrolmentTable) DeleteEnrolment(ctx context.Context, id string) error {
	_, err := q.exec(ctx, `DELETE FROM enrolments WHERE id = $1`, id)
	return err
}

// DeleteEnrolmentsOf forgets those that wait with a token.
func (q enrolmentTable) DeleteEnrolmentsOf(ctx context.Context, tokenID string) error {
	_, err := q.exec(ctx, `DELETE FROM enrolments WHERE token_id = $1`, tokenID)
	return err
}

// ForgetEnrolments deletes registrations that began, or were approved, before the first time, and
// those that were denied before the second.
func (q enrolmentTable) ForgetEnrolments(ctx context.Context, before, deniedBefore time.Time) error {
	_, err := q.exec(ctx, `DELETE FROM enrolments WHERE state <> $1 AND asked_at < $2 AND decided_at < $2 OR state = $1 AND decided_at < $3`,
		EnrolmentDenied, micros(before), micros(deniedBefore))
	return err
}
