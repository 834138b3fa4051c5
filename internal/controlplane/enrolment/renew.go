package enrolment

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Renew implements controlapi.Backend.
func (r *Registrar) Renew(ctx context.Context, agentID string, req controlapi.RenewRequest) (controlapi.Identity, error) {
	if skewed := controlapi.ClockSkew(req.Clock, r.cfg.Now()); skewed != nil {
		return controlapi.Identity{}, skewed
	}
	csr, err := r.request(req.CSR)
	if err != nil {
		return controlapi.Identity{}, err
	}
	proven := authn.ProvenKeyOf(ctx)
	if agentID == "" {
		if agentID, proven, err = r.recovered(ctx, req); err != nil {
			return controlapi.Identity{}, err
		}
	}
	if err := r.authn.SameCluster(ctx, agentID, controlapi.OriginFrom(ctx)); err != nil {
		return controlapi.Identity{}, err
	}
	err = r.store.Update(ctx, func(tx *store.Tx) error {
		return rekey(ctx, tx, agentID, proven, fingerprintOf(csr))
	})
	if err != nil {
		return controlapi.Identity{}, err
	}
	return r.identity(csr, agentID, castore.ReasonRenewal)
}

// recovered returns the agent that proves the key of an expired certificate.
func (r *Registrar) recovered(ctx context.Context, req controlapi.RenewRequest) (agentID, key string, err error) {
	cert, err := ca.ParseCertificate(req.OldCertificate)
	if err != nil {
		return "", "", problem.Errorf(problem.Invalid, "send the expired certificate in PEM", "the old certificate cannot be read").WithField("oldCertificate")
	}
	if r.ca.Verify(cert, authn.JustBefore(cert.NotAfter)) != nil {
		return "", "", controlapi.Errorf(controlapi.CodeCertificateUnknown, authn.FixRegister, "the old certificate is not one of this control plane's").WithField("oldCertificate")
	}
	if !controlapi.VerifyRecovery(cert.PublicKey, req) {
		return "", "", controlapi.Errorf(controlapi.CodeCertificateUnknown, authn.FixRegister, "the proof was not made with the old certificate's key").WithField("proof")
	}
	id, bad := r.authn.Name(cert, ca.RoleAgent)
	if bad != nil {
		return "", "", bad
	}
	if _, err := r.authn.KnownAgent(ctx, id, cert); err != nil {
		return "", "", err
	}
	return id, authn.KeyPrint(cert), nil
}

// rekey records the key that is certified next. The proven key stays valid until then, because the
// answer with the new certificate may be lost.
func rekey(ctx context.Context, tx *store.Tx, agentID, proven, next string) error {
	a, err := authn.AdmittedAgent(ctx, tx, agentID)
	switch {
	case err != nil:
		return err
	case proven != a.Key && proven != a.PreviousKey:
		return controlapi.Errorf(controlapi.CodeCertificateUnknown, authn.FixRegister, "agent %s has another key since", agentID)
	}
	a.Key, a.PreviousKey = next, proven
	return tx.UpdateAgent(ctx, a)
}
