// Package authn identifies agents, Runners and operators by their certificates, and renews Runners'
// certificates. No other package verifies a client's certificate.
package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

// Authenticator identifies the other end of a connection from its certificate. The HTTPS API
// requests certificates without verifying them in TLS, so that the holder of an expired or foreign
// one receives an explanation. This is the one place that verifies them.
type Authenticator struct {
	Store       *store.Store
	CA          *ca.CA
	TrustDomain string
	Now         func() time.Time
	// OpenID is the digest of the settings by which operators sign in by OpenID Connect; empty if
	// they do not. Sessions that were opened with other settings have ended.
	OpenID string
	Log    zerolog.Logger
	// Clones is told of copies of agents' identities.
	Clones interface {
		Seen(ctx context.Context, agentID string, clone announce.Clone)
	}
}

// FixRegister is for an agent whose certificate is worth nothing any more.
const FixRegister = "register again with a new token from `pipeops-controlplane token create`"

// Verify checks a certificate and returns the name in it.
func (p *Authenticator) Verify(cert *x509.Certificate, role string) (string, *problem.Error) {
	now, cert := p.Now(), credentials.Understood(cert) // what a Runner is granted is in the store as well
	if err := p.CA.Verify(cert, now); err != nil {
		if p.CA.Verify(cert, JustBefore(cert.NotAfter)) != nil {
			return "", controlapi.Errorf(controlapi.CodeCertificateUnknown, FixRegister, "the client certificate is not one of this control plane's")
		}
		return "", controlapi.Errorf(controlapi.CodeCertificateExpired, "prove the old key to get a new certificate; if the agent's clock is wrong, set it",
			"the client certificate was valid from %s to %s; the control plane's clock says %s",
			cert.NotBefore.Format(time.RFC3339), cert.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return p.Name(cert, role)
}

// JustBefore returns the last moment before t, at which a certificate that ended at t was valid.
func JustBefore(t time.Time) time.Time { return t.Add(-time.Nanosecond) }

// Name takes the name out of spiffe://TRUST_DOMAIN/ROLE/NAME.
func (p *Authenticator) Name(cert *x509.Certificate, role string) (string, *problem.Error) {
	if len(cert.URIs) == 1 && cert.URIs[0].Scheme == "spiffe" && cert.URIs[0].Host == p.TrustDomain {
		if name, ok := strings.CutPrefix(cert.URIs[0].Path, "/"+role+"/"); ok && name != "" {
			return name, nil
		}
	}
	return "", controlapi.Errorf(controlapi.CodeCertificateUnknown, "use the certificate that was issued for this", "the client certificate is no %s's of %s", role, p.TrustDomain)
}

// agent returns which agent a certificate proves, if that may still come.
func (p *Authenticator) agent(ctx context.Context, cert *x509.Certificate) (store.Agent, error) {
	id, bad := p.Verify(cert, ca.RoleAgent)
	if bad != nil {
		return store.Agent{}, bad
	}
	return p.KnownAgent(ctx, id, cert)
}

// KnownAgent returns the agent of a certificate of ours, which may have ended, if the certificate's
// key is the agent's.
func (p *Authenticator) KnownAgent(ctx context.Context, id string, cert *x509.Certificate) (store.Agent, error) {
	a, err := AdmittedAgent(ctx, p.Store, id)
	if err != nil {
		return store.Agent{}, p.undecided(err)
	}
	if key := KeyPrint(cert); key == a.Key || key == a.PreviousKey {
		return a, nil
	}
	a, err = p.recall(ctx, a, cert)
	return a, p.undecided(err)
}

// agents is where agents are looked up: the store, or a transaction in it.
type agents interface {
	Agent(ctx context.Context, id string) (store.Agent, error)
}

// AdmittedAgent returns an agent unless it is unknown or revoked.
func AdmittedAgent(ctx context.Context, in agents, id string) (store.Agent, error) {
	a, err := in.Agent(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return store.Agent{}, UnknownAgent(id)
	case err != nil:
		return store.Agent{}, err
	case a.Revoked():
		return store.Agent{}, RevokedAgent(a)
	}
	return a, nil
}

// UnknownAgent is the error for an agent that is not registered.
func UnknownAgent(id string) *problem.Error {
	return controlapi.Errorf(controlapi.CodeAgentUnknown, FixRegister, "the control plane does not know agent %s", id)
}

// RevokedAgent is the error for an agent that was revoked.
func RevokedAgent(a store.Agent) *problem.Error {
	return controlapi.Errorf(controlapi.CodeRevoked, "ask the operator of the control plane; `pipeops-controlplane agent delete "+a.ID+"` lets the cluster register again",
		"agent %s (%s) was revoked at %s", a.Name, a.ID, a.RevokedAt.Format(time.RFC3339))
}

// retryAfter is when a caller that could not be identified may try again.
const retryAfter = 2 * time.Second

// undecided returns an error that is not a refusal as one that says so. A caller that cannot be
// identified, because the database does not respond, was not refused.
func (p *Authenticator) undecided(err error) error {
	if refused, ok := errors.AsType[*problem.Error](err); err == nil || ok && refused != nil {
		return err
	}
	p.Log.Error().Err(err).Msg("failed to identify a caller")
	return fmt.Errorf("%w: %w", problem.Errorf(problem.Unavailable, "try again in a moment",
		"the control plane cannot identify the caller: its database does not respond").WithRetryAfter(retryAfter), err)
}

// AgentOfRequest implements controlapi.HandlerConfig.Identify.
func (p *Authenticator) AgentOfRequest(r *http.Request) (string, error) {
	cert := CertificateOf(r.TLS)
	if cert == nil {
		return "", controlapi.Errorf(controlapi.CodeCertificateUnknown, "register first, then call with the agent's certificate", "no client certificate was presented")
	}
	a, err := p.agent(r.Context(), cert)
	if err != nil {
		return "", err
	}
	if err := p.ofCluster(r.Context(), a, controlapi.OriginOf(r)); err != nil {
		return "", err
	}
	if c := callOf(r.Context()); c != nil {
		c.agent = a
	}
	return a.ID, nil
}

// AgentOfTunnel implements server.Config.Identify.
func (p *Authenticator) AgentOfTunnel(cs tls.ConnectionState) (string, error) {
	cert := CertificateOf(&cs)
	if cert == nil {
		return "", errors.New("no client certificate was presented")
	}
	p.CA.Took(cs.VerifiedChains)
	ctx, cancel := context.WithTimeout(context.Background(), store.Timeout)
	defer cancel()
	a, err := p.agent(ctx, cert)
	if problem.Is(err, controlapi.CodeRevoked) || problem.Is(err, controlapi.CodeAgentUnknown) {
		// Admit is called next, and can report to the agent that the refusal is final.
		return p.nameOnly(cert)
	}
	if err != nil {
		return "", err
	}
	return a.ID, nil
}

func (p *Authenticator) nameOnly(cert *x509.Certificate) (string, error) {
	name, bad := p.Name(cert, ca.RoleAgent)
	if bad != nil {
		return "", bad
	}
	return name, nil
}

// Admit implements server.Config.Admit: it runs before the tunnel takes over a connection of the
// same name, and before Runners are sent there.
func (p *Authenticator) Admit(ctx context.Context, id string, login server.Login) error {
	a, err := p.Store.Agent(ctx, id)
	if errors.Is(err, store.ErrNotFound) || err == nil && a.Revoked() {
		return server.ErrRevoked
	}
	if err != nil {
		return err
	}
	err = p.ofCluster(ctx, a, controlapi.Origin{ClusterUID: login.Cluster, Instance: login.Instance, Address: login.Address})
	if refusal, ok := errors.AsType[*problem.Error](err); ok && refusal != errNoCluster { // which passes
		return &server.RefusalError{Reason: refusal.Detail}
	}
	return err
}

// fixRunner is for a Runner whose certificate is worth nothing.
const fixRunner = "use the credentials that `pipeops-controlplane runner create NAME -o FILE` wrote"

func noCertificate() error {
	return controlapi.Errorf(controlapi.CodeCertificateUnknown, fixRunner, "no client certificate was presented")
}

// runnerAgain is the command that makes new credentials.
func runnerAgain(name string) string {
	return "`pipeops-controlplane runner create " + name + " -o FILE --force`"
}

// RunnerOfRequest identifies a Runner for the calls of Runners.
func (p *Authenticator) RunnerOfRequest(r *http.Request) (string, error) {
	cert := CertificateOf(r.TLS)
	if cert == nil {
		return "", noCertificate()
	}
	name, bad := p.Verify(cert, ca.RoleRunner)
	if bad != nil {
		bad.Fix = fixRunner
		if bad.Code == controlapi.CodeCertificateExpired {
			bad.Fix = "renew the certificate with POST " + login.Path + "; if that is refused, the operator of the control plane makes new credentials with " + runnerAgain("NAME")
		}
		return "", bad
	}
	if _, err := p.knownRunner(r.Context(), name, cert); err != nil {
		return "", err
	}
	return name, nil
}

// knownRunner returns the Runner of a verified certificate. It refuses a certificate that was
// revoked or replaced.
func (p *Authenticator) knownRunner(ctx context.Context, name string, cert *x509.Certificate) (store.Runner, error) {
	none, again := store.Runner{}, runnerAgain(name)
	known, err := p.Store.Runner(ctx, name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return none, controlapi.Errorf(controlapi.CodeCertificateUnknown,
			"new credentials are needed: the operator of the control plane makes them with "+again, "the control plane does not know Runner %s", name)
	case err != nil:
		return none, p.undecided(err)
	case known.Serial != cert.SerialNumber.Text(16):
		return none, controlapi.Errorf(controlapi.CodeCertificateUnknown,
			"use the newest credentials; if they are lost, the operator of the control plane makes others with "+again, "Runner %s has a newer certificate", name)
	case !known.RevokedAt.IsZero():
		return none, controlapi.Errorf(controlapi.CodeCertificateUnknown,
			"these credentials are over, new ones are needed: the operator of the control plane makes them with "+again,
			"Runner %s was revoked at %s", name, known.RevokedAt.UTC().Format(time.RFC3339))
	}
	if known.OpenID != nil {
		err = exchanged(ctx, p, name, cert)
	} else {
		err = p.noteRunner(ctx, name, cert)
	}
	if err != nil {
		return none, p.undecided(err)
	}
	return known, nil
}

// CertificateOf returns the certificate that a client presented; nil for none.
func CertificateOf(cs *tls.ConnectionState) *x509.Certificate {
	if cs == nil || len(cs.PeerCertificates) == 0 {
		return nil
	}
	return cs.PeerCertificates[0]
}

// KeyPrint names the key of a certificate.
func KeyPrint(cert *x509.Certificate) string { return controlapi.Fingerprint(cert) }

type callKey struct{}

// call is what is known of a call once it is known whose it is.
type call struct {
	cert  *x509.Certificate
	agent store.Agent // as it was read for this call; its ID is empty for a call that is not an agent's
}

// WithCall records a call's certificate: for renewals, since its key stays valid until its
// successor has been used, and to record which CA the caller's certificate comes from.
func WithCall(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if cert := CertificateOf(r.TLS); cert != nil {
			r = r.WithContext(context.WithValue(r.Context(), callKey{}, &call{cert: cert}))
		}
		next.ServeHTTP(w, r)
	})
}

func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// ProvenKeyOf returns the key of the certificate that a call came with; empty for none.
func ProvenKeyOf(ctx context.Context) string {
	if cert := PresentedOf(ctx); cert != nil {
		return KeyPrint(cert)
	}
	return ""
}

// AgentOf returns the calling agent as it was read for this call; its ID is empty if it was not.
func AgentOf(ctx context.Context) store.Agent {
	if c := callOf(ctx); c != nil {
		return c.agent
	}
	return store.Agent{}
}

// PresentedOf returns the certificate that a call came with; nil for none.
func PresentedOf(ctx context.Context) *x509.Certificate {
	if c := callOf(ctx); c != nil {
		return c.cert
	}
	return nil
}
