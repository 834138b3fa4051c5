package castore

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// CertificatesFor is how long the log keeps a certificate after the certificate's end.
	CertificatesFor = 90 * 24 * time.Hour
	// MaxIssued is how many certificates one agent or Runner gets within IssuedWithin. It bounds
	// what one that asks again and again can write into the database.
	MaxIssued = 600
	// IssuedWithin is the time of MaxIssued.
	IssuedWithin = time.Hour
)

// ReasonRenewal is the reason of a certificate that its holder asked for.
const ReasonRenewal = "renewal"

// certificateLog keeps the log of certificates in the database.
type certificateLog struct{ store *store.Store }

var _ ca.Log = certificateLog{}

// Record implements ca.Log.
func (l certificateLog) Record(r ca.Record) error {
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	return l.store.UpdateQuietly(ctx, func(tx *store.Tx) error {
		if err := mayHaveOneMore(ctx, tx, r); err != nil {
			return err
		}
		return tx.AddCertificate(ctx, store.Certificate{
			Serial: r.Serial, Role: r.Role, Name: r.Name, Issuer: r.Issuer, NotBefore: r.NotBefore, NotAfter: r.NotAfter,
			SHA256: r.SHA256, IssuedAt: r.IssuedAt, Reason: r.Reason,
		})
	})
}

// mayHaveOneMore refuses agents and Runners that ask for certificates all the time.
func mayHaveOneMore(ctx context.Context, tx *store.Tx, r ca.Record) error {
	if r.Role != ca.RoleAgent && r.Role != ca.RoleRunner {
		return nil
	}
	n, err := tx.CertificatesSince(ctx, r.Role, r.Name, r.IssuedAt.Add(-IssuedWithin))
	if err != nil || n < MaxIssued {
		return err
	}
	return problem.Errorf(problem.TooManyRequests, "wait, and use the certificate that you have",
		"%s %s got %d certificates within an hour", r.Role, r.Name, n).WithRetryAfter(time.Minute)
}

// ForgetCertificates deletes the records of certificates that ended long before now.
func ForgetCertificates(ctx context.Context, s *store.Store, now time.Time) error {
	return s.ForgetCertificates(ctx, now.Add(-CertificatesFor))
}
