package authn

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
)

// trustOf returns what is known about a Runner from its certificate.
func trustOf(c ca.Trust, runner string, cert *x509.Certificate) store.RunnerTrust {
	return store.RunnerTrust{Runner: runner, Serial: cert.SerialNumber.Text(16), Key: KeyPrint(cert), Issuer: c.RootID(cert)}
}

// PutRunnerTrust records a certificate that was issued to a Runner.
func PutRunnerTrust(ctx context.Context, tx *store.Tx, c ca.Trust, runner string, issued ca.Issued) error {
	cert, err := ca.ParseCertificate(issued.Certificate)
	if err != nil {
		return err
	}
	return tx.PutRunnerTrust(ctx, trustOf(c, runner, cert))
}

// noteRunner records which CA's certificate a Runner uses. A certificate of a former CA, whose key
// may have leaked, must contain the key on record.
func (p *Authenticator) noteRunner(ctx context.Context, runner string, cert *x509.Certificate) error {
	now := trustOf(p.CA.Trust, runner, cert)
	known, err := p.Store.RunnerTrust(ctx, runner)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	switch {
	case known == now:
		return nil
	case known.Serial != now.Serial || known.Key != now.Key:
		return controlapi.Errorf(controlapi.CodeCertificateUnknown, "make new credentials with `pipeops-controlplane runner create "+runner+" -o FILE --force`",
			"the certificate of Runner %s is not over the key on record", runner)
	}
	return p.Store.PutRunnerTrust(ctx, now)
}

// exchanged refuses a certificate of a former CA, whose key may have leaked, unless it was issued
// to a Runner for an ID token. Such certificates have many keys.
func exchanged(ctx context.Context, p *Authenticator, runner string, cert *x509.Certificate) error {
	if p.CA.Current(cert) {
		return nil
	}
	sum := sha256.Sum256(cert.Raw)
	found, err := p.Store.Certificates(ctx, store.CertificatesWanted{Roles: []string{ca.RoleRunner}, Names: []string{runner}, SHA256: hex.EncodeToString(sum[:]), Limit: 1})
	if err == nil && len(found) == 0 {
		err = controlapi.Errorf(controlapi.CodeCertificateUnknown, fixExchange, "the certificate of Runner %s was not issued for an ID token", runner)
	}
	return err
}

// NamingIssuer names the CA that signs for Runners now in each answer to one.
func (p *Authenticator) NamingIssuer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(login.HeaderIssuer, p.CA.SignerID(ca.RoleRunner))
		next.ServeHTTP(w, r)
	})
}
