package transport

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// The codes of refusals, as they appear in the audit log.
const (
	RefusedUnknown    = runnerapi.Code("certificate_unknown") // of another CA, or no Runner's
	RefusedExpired    = runnerapi.Code("certificate_expired") // or not valid yet
	RefusedRevoked    = runnerapi.Code("runner_revoked")
	RefusedNotGranted = runnerapi.Code("runner_not_granted") // its grant is not for this agent
	RefusedUnread     = runnerapi.Code("grant_unreadable")
	RefusedNotPinned  = runnerapi.Code("runner_not_pinned") // the cluster owner's policy trusts another key
	RefusedNotCurrent = runnerapi.Code("agent_not_current") // the agent could not learn what is revoked
)

// Refusal describes why a certificate was refused.
type Refusal struct {
	Code    runnerapi.Code
	Message string
	// Runner is empty if the certificate proves no name.
	Runner string
	// Certificate is the certificate's serial number in hexadecimal.
	Certificate string
	// Open reports whether the connection was admitted before and is now cut.
	Open bool
}

// maxRefusal bounds the text of a refusal, in bytes: it quotes what unknown peers sent.
const maxRefusal = 512

// currentWait bounds how long a handshake waits for Current. It is shorter than a client's
// handshake timeout.
const currentWait = 8 * time.Second

// runner is an admitted Runner.
type runner struct {
	chains [][]*x509.Certificate
	// until is when the first certificate of its chain expires.
	until time.Time
	now   func() time.Time
	// still returns a refusal if the Runner may no longer stay, and nil otherwise.
	still func() *Refusal
	// refused is called when the Runner may no longer stay.
	refused func(Refusal)
}

// runnerVerifier returns the function that decides at the end of a handshake whether a Runner is
// admitted.
func (c *TLSConfig) runnerVerifier(hello *tls.ClientHelloInfo) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		r, refusal := c.admit(hello.Context(), state.PeerCertificates)
		if refusal != nil {
			if refusal.Code == RefusedNotCurrent {
				// crypto/tls reports every error as a bad certificate, which stops a Runner's
				// retries.
				_ = hello.Conn.Close()
			}
			return c.turnAway(refusal)
		}
		if d, ok := hello.Conn.(*trackedConn); ok {
			d.admit(r)
			if refusal := r.still(); refusal != nil { // again: the tracker could not see the connection before
				return c.turnAway(refusal)
			}
		}
		return nil
	}
}

// turnAway reports a refusal and returns it as the handshake's error.
func (c *TLSConfig) turnAway(r *Refusal) error {
	c.tell(*r)
	return errors.New(r.Message)
}

func (c *TLSConfig) tell(r Refusal) {
	if c.Refused != nil {
		c.Refused(r)
	}
}

// admit decides whether a Runner with these certificates is admitted. It verifies the identity
// first, so that unknown peers never get to wait.
func (c *TLSConfig) admit(ctx context.Context, certs []*x509.Certificate) (*runner, *Refusal) {
	r, refusal := c.judge(certs)
	if refusal != nil {
		return nil, refusal
	}
	if c.Current != nil {
		ctx, cancel := context.WithTimeout(ctx, currentWait)
		defer cancel()
		if err := c.Current(ctx); err != nil {
			return nil, refuse(certs[0], c.TrustDomain, RefusedNotCurrent,
				"the agent cannot accept Runners before the control plane has told it who is revoked: %v", err)
		}
		if r, refusal = c.judge(certs); refusal != nil {
			return nil, refusal
		}
	}
	r.still = func() *Refusal {
		_, refusal := c.judge(certs)
		return refusal
	}
	r.refused, r.now = c.tell, c.now
	return r, nil
}

// judge checks certificates against what the agent knows now.
func (c *TLSConfig) judge(certs []*x509.Certificate) (*runner, *Refusal) {
	leaf := certs[0]
	chains, err := c.verify(certs)
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return nil, refuse(leaf, c.TrustDomain, RefusedExpired, "the certificate is valid from %s to %s; the agent's clock says %s",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), c.now().UTC().Format(time.RFC3339))
	}
	if err != nil {
		return nil, refuse(leaf, "", RefusedUnknown, "the certificate is not one that the agent trusts: %v", err)
	}
	name, err := credentials.CertificateName(leaf, c.TrustDomain, trustanchor.RoleRunner)
	if err == nil {
		err = trustanchor.SignedFor(chains, c.TrustDomain, trustanchor.RoleRunner)
	}
	if err != nil {
		return nil, refuse(leaf, "", RefusedUnknown, "%v", err)
	}
	grant, err := credentials.GrantOf(leaf)
	var agent map[string]string
	if c.Labels != nil {
		agent = c.Labels()
	}
	var distrust error
	if c.Trusts != nil {
		distrust = c.Trusts(name, certs)
	}
	switch {
	case err != nil:
		return nil, refuse(leaf, c.TrustDomain, RefusedUnread, "agent refuses Runner %s: %v", name, err)
	case c.Revoked != nil && c.Revoked(leaf.SerialNumber.Text(16)):
		return nil, refuse(leaf, c.TrustDomain, RefusedRevoked, "agent refuses Runner %s: its certificate was revoked", name)
	case distrust != nil:
		return nil, refuse(leaf, c.TrustDomain, RefusedNotPinned, "agent refuses Runner %s: %v", name, distrust)
	case !grant.Allows(agent):
		return nil, refuse(leaf, c.TrustDomain, RefusedNotGranted, "agent refuses Runner %s: not granted; it is for agents with %s", name, grant)
	}
	return &runner{chains: chains, until: expiry(chains)}, nil
}

// expiry returns when the first chain expires, which is when its earliest certificate does.
func expiry(chains [][]*x509.Certificate) time.Time {
	until := chains[0][0].NotAfter
	for _, cert := range chains[0] {
		if cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
	return until
}

// refuse returns a refusal. Certificates that prove nothing have an empty trust domain.
func refuse(cert *x509.Certificate, trustDomain string, code runnerapi.Code, format string, args ...any) *Refusal {
	r := &Refusal{Code: code, Message: printable.Shorten(fmt.Sprintf(format, args...), maxRefusal), Certificate: cert.SerialNumber.Text(16)}
	if trustDomain != "" {
		r.Runner, _ = credentials.CertificateName(cert, trustDomain, trustanchor.RoleRunner)
	}
	return r
}
