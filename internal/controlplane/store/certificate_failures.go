package store

import (
	"context"
	"time"
)

// CertificateFailure is why a public host has no new certificate.
type CertificateFailure struct {
	Host     string
	Failures int // attempts in a row
	Reason   string
	NextAt   time.Time // the next attempt
}

const failureColumns = `host, failures, reason, next_at`

func scanFailure(row scanner, f *CertificateFailure) error {
	return row.Scan(&f.Host, &f.Failures, &f.Reason, moment{&f.NextAt})
}

// CertificateFailure returns why a host has no new certificate, or ErrNotFound.
func (q gatewayTable) CertificateFailure(ctx context.Context, host string) (CertificateFailure, error) {
	return one(q.q.QueryRowContext(ctx, `SELECT `+failureColumns+` FROM certificate_failures WHERE host = $1`, host), scanFailure)
}

// CertificateFailures lists the hosts that have no new certificate.
func (q gatewayTable) CertificateFailures(ctx context.Context) ([]CertificateFailure, error) {
	return all(ctx, q.q, scanFailure, `SELECT `+failureColumns+` FROM certificate_failures ORDER BY host`)
}

// PutCertificateFailure records why a host has no new certificate.
func (s *Store) PutCertificateFailure(ctx context.Context, f CertificateFailure) error {
	return s.UpdateQuietly(ctx, func(tx *Tx) error {
		_, err := tx.exec(ctx, `INSERT INTO certificate_failures (`+failureColumns+`) VALUES ($1, $2, $3, $4)
			ON CONFLICT (host) DO UPDATE SET failures = excluded.failures, reason = excluded.reason, next_at = excluded.next_at`,
			f.Host, f.Failures, f.Reason, micros(f.NextAt))
		return err
	})
}

// DeleteCertificateFailure forgets the failures of a host.
func (s *Store) DeleteCertificateFailure(ctx context.Context, host string) error {
	return s.UpdateQuietly(ctx, func(tx *Tx) error {
		_, err := tx.exec(ctx, `DELETE FROM certificate_failures WHERE host = $1`, host)
		return err
	})
}
