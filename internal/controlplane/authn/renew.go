package authn

import (
	"context"
	"crypto/x509"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

const (
	// maxRenewalGrace is how long after its end a Runner's certificate can be renewed, so that a
	// weekend does not end credentials; and graceLives is the same in lives of the certificate.
	maxRenewalGrace = 7 * 24 * time.Hour
	graceLives      = 7
)

// fixExchange is for a Runner that gets its certificates for ID tokens.
const fixExchange = "exchange an ID token with POST " + login.ExchangePath + ", as pipeops-runner does where it finds one"

// RenewableUntil returns when a Runner's certificate cannot be renewed any more. No agent accepts
// the certificate after its end; the control plane still knows whether it was revoked.
func RenewableUntil(end time.Time, ttl time.Duration) time.Time {
	return end.Add(min(maxRenewalGrace, graceLives*ttl))
}

// Renew serves login.Path: it returns a Runner's certificate for another life. A certificate that
// is not due stays the same, so that asking again and again issues nothing.
func (p *Authenticator) Renew(r *http.Request) (login.Answer, error) {
	ctx, cert := r.Context(), CertificateOf(r.TLS)
	known, err := p.renewing(ctx, cert)
	if err != nil {
		return login.Answer{}, err
	}
	if p.CA.Current(cert) && cert.NotAfter.Sub(p.Now()) > known.TTL/2 {
		return login.Answer{Certificate: p.CA.Again(cert).Certificate, CA: string(p.CA.Bundle())}, nil
	}
	issued, err := p.CA.Renew(cert, known.TTL, castore.ReasonRenewal)
	if err != nil {
		return login.Answer{}, err
	}
	err = p.Store.Update(ctx, func(tx *store.Tx) error { return p.KeepRenewed(ctx, tx, known, issued) })
	if err != nil {
		return login.Answer{}, err
	}
	return login.Answer{Certificate: issued.Certificate, CA: string(p.CA.Bundle())}, nil
}

// renewing returns the Runner that asks for another life of its certificate, which may have ended.
func (p *Authenticator) renewing(ctx context.Context, cert *x509.Certificate) (store.Runner, error) {
	if cert == nil {
		return store.Runner{}, noCertificate()
	}
	name, bad := p.Verify(cert, ca.RoleRunner)
	ended := bad
	if bad != nil && bad.Code == controlapi.CodeCertificateExpired {
		name, bad = p.Name(cert, ca.RoleRunner)
	}
	if bad != nil {
		bad.Fix = fixRunner
		return store.Runner{}, bad
	}
	known, err := p.knownRunner(ctx, name, cert)
	if err != nil {
		return store.Runner{}, err
	}
	if known.OpenID != nil {
		return store.Runner{}, controlapi.Errorf(controlapi.CodeCertificateUnknown, fixExchange, "Runner %s gets its certificates for ID tokens, and none is renewed", name)
	}
	if now := p.Now(); ended != nil && (now.Before(cert.NotBefore) || now.After(RenewableUntil(cert.NotAfter, known.TTL))) {
		ended.Fix = "its time to be renewed is over: the operator of the control plane makes new credentials with " + runnerAgain(name) +
			"; a Runner that runs seldom needs a longer --ttl"
		return store.Runner{}, ended
	}
	return known, nil
}

// KeepRenewed records the new end, unless the Runner was revoked or got other credentials
// meanwhile.
func (p *Authenticator) KeepRenewed(ctx context.Context, tx *store.Tx, r store.Runner, issued ca.Issued) error {
	now, err := tx.Runner(ctx, r.Name)
	if err != nil {
		return err
	}
	if now.Serial != r.Serial || !now.RevokedAt.IsZero() {
		return problem.Errorf(problem.Busy, "send it again", "Runner %s was changed at this moment", r.Name)
	}
	now.ExpiresAt = issued.NotAfter
	if err := tx.PutRunner(ctx, now); err != nil {
		return err
	}
	return PutRunnerTrust(ctx, tx, p.CA.Trust, r.Name, issued)
}
