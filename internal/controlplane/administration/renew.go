package administration

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// Renewed is an operator's certificate for another life, with the same key and serial number.
type Renewed struct {
	Certificate string    `json:"certificate" doc:"PEM: the certificate, then what leads to the CA."`
	CA          string    `json:"ca" doc:"PEM: the control plane's CA."`
	ExpiresAt   time.Time `json:"expiresAt"`
}

// Renew returns the certificate that an operator has presented, for another life. A certificate
// that has more than half of its life left, and is of the CA that signs now, stays the same.
func (a *Operators) Renew(ctx context.Context, name string, cert *x509.Certificate) (Renewed, error) {
	if _, err := a.ca.Reload(); err != nil {
		return Renewed{}, err
	}
	ttl := ca.Life(cert)
	issued := a.ca.Again(cert)
	if !a.dry && (!a.ca.Current(cert) || cert.NotAfter.Sub(a.now()) <= ttl/2) {
		var err error
		if issued, err = a.ca.Renew(cert, ttl, castore.ReasonRenewal); err != nil {
			return Renewed{}, err
		}
		if err := a.store.Update(ctx, func(tx *store.Tx) error { return keepRenewed(ctx, tx, name, issued) }); err != nil {
			return Renewed{}, err
		}
	}
	return Renewed{Certificate: issued.Certificate, CA: string(a.ca.Bundle()), ExpiresAt: issued.NotAfter}, nil
}

// keepRenewed records the new end, unless the operator was revoked or got other credentials
// meanwhile.
func keepRenewed(ctx context.Context, tx *store.Tx, name string, issued ca.Issued) error {
	known, err := tx.Operator(ctx, name)
	if err != nil {
		return err
	}
	if known.Serial != issued.Serial || !known.RevokedAt.IsZero() {
		return conflict("use the newest credentials", "operator %s was changed at this moment", name)
	}
	known.ExpiresAt = issued.NotAfter
	return tx.PutOperator(ctx, known)
}
