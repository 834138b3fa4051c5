package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// reasonRestored is the reason, in the log of certificates, of one that a restore of the database
// had lost.
const reasonRestored = "presented after a restore of the database"

// recall accepts an agent's certificate that was issued after the database's backup was made. Each
// certificate is in the log before its holder gets it. So one that is newer than all that the log
// has for the agent proves that a restore lost its record. Older certificates are of an earlier
// installation in the same cluster: they ended when the next one registered.
func (p *Authenticator) recall(ctx context.Context, a store.Agent, cert *x509.Certificate) (store.Agent, error) {
	if err := lost(ctx, p.Store, a, cert); err != nil { // most are refused without a lock
		return store.Agent{}, err
	}
	err := p.Store.Update(ctx, func(tx *store.Tx) (err error) {
		if a, err = AdmittedAgent(ctx, tx, a.ID); err != nil || a.Key == KeyPrint(cert) { // another call recalled it
			return err
		}
		if err := lost(ctx, tx, a, cert); err != nil {
			return err
		}
		a.Key, a.PreviousKey = KeyPrint(cert), ""
		if err := tx.UpdateAgent(ctx, a); err != nil {
			return err
		}
		return tx.AddCertificate(ctx, p.recalled(a, cert))
	})
	if err != nil {
		return store.Agent{}, err
	}
	p.Log.Warn().Str("agent", a.ID).Str("name", a.Name).Time("issued", cert.NotBefore).
		Msg("the database does not have this agent's certificate, because it was restored from an older backup; the certificate is accepted " +
			"(fix: revoke again what was revoked since the backup)")
	return a, nil
}

// certificates is where the log of certificates is read: the store, or a transaction in it.
type certificates interface {
	Certificates(ctx context.Context, w store.CertificatesWanted) ([]store.Certificate, error)
}

// lost returns an error unless a restore lost the record of an agent's certificate. The log forgets
// certificates long after their end; then the certificate must be newer than the agent's last call.
func lost(ctx context.Context, log certificates, a store.Agent, cert *x509.Certificate) error {
	logged, err := log.Certificates(ctx, store.CertificatesWanted{Roles: []string{ca.RoleAgent}, Names: []string{a.ID}, Limit: 1})
	if err != nil {
		return err
	}
	newest := a.LastSeen
	if len(logged) > 0 {
		newest = logged[0].NotBefore
	}
	if cert.NotBefore.After(newest) {
		return nil
	}
	return controlapi.Errorf(controlapi.CodeCertificateUnknown, FixRegister+"; or end this installation, if the cluster has a newer one",
		"agent %s has registered with another key since", a.ID)
}

// recalled is the record of a certificate that was recalled.
func (p *Authenticator) recalled(a store.Agent, cert *x509.Certificate) store.Certificate {
	sum := sha256.Sum256(cert.Raw)
	return store.Certificate{
		Serial: cert.SerialNumber.Text(16), Role: ca.RoleAgent, Name: a.ID, Issuer: ca.IssuerID(cert), SHA256: hex.EncodeToString(sum[:]),
		NotBefore: cert.NotBefore, NotAfter: cert.NotAfter, IssuedAt: p.Now(), Reason: reasonRestored,
	}
}
