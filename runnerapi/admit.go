package runnerapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// The codes of refusals, as the audit log has them.
const (
	RefusedUnknown    = Code("certificate_unknown") // of another CA, or no Runner's
	RefusedExpired    = Code("certificate_expired") // or not valid yet
	RefusedRevoked    = Code("runner_revoked")
	RefusedNotGranted = Code("runner_not_granted") // its grant is not for this agent
	RefusedUnread     = Code("grant_unreadable")
	RefusedNotPinned  = Code("runner_not_pinned") // the customer's policy trusts another key
	RefusedNotCurrent = Code("agent_not_current") // the agent could not learn who is revoked
)

// Refusal is that a certificate was not let in.
type Refusal struct {
	Code    Code
	Message string
	// Runner is empty where the certificate does not prove who it is.
	Runner string
	// Certificate is its serial number in hexadecimal.
	Certificate string
	// Open says that the connection had been let in before, and was cut.
	Open bool
}

// maxRefusal bounds a refusal's words, in bytes: they quote what strangers sent.
const maxRefusal = 512

// currentWait bounds how long a handshake waits for Current: less than a client
// waits for the handshake.
const currentWait = 8 * time.Second

// runner is one that was let in.
type runner struct {
	chains [][]*x509.Certificate
	// until is when the first certificate of its chain expires, by the clock now.
	until time.Time
	now   func() time.Time
	// still says whether it may stay, by what is known now.
	still func() *Refusal
	// refused hears that it may not.
	refused func(Refusal)
}

// runnerVerifier decides at the end of a handshake whether a Runner is let in.
func (c *ServerTLSConfig) runnerVerifier(hello *tls.ClientHelloInfo) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) error {
		r, refusal := c.admit(hello.Context(), state.PeerCertificates)
		if refusal != nil {
			if refusal.Code == RefusedNotCurrent {
				// crypto/tls tells every error as a bad certificate, which ends a Runner's tries.
				_ = hello.Conn.Close()
			}
			return c.turnAway(refusal)
		}
		if d, ok := hello.Conn.(*door); ok {
			d.admit(r)
			if refusal := r.still(); refusal != nil { // since a moment ago: nobody had seen the door yet
				return c.turnAway(refusal)
			}
		}
		return nil
	}
}

// turnAway tells of a refusal and makes it the handshake's error.
func (c *ServerTLSConfig) turnAway(r *Refusal) error {
	c.tell(*r)
	return errors.New(r.Message)
}

func (c *ServerTLSConfig) tell(r Refusal) {
	if c.Refused != nil {
		c.Refused(r)
	}
}

// admit says whether a Runner with those certificates is let in. Who it is comes
// first: strangers do not get to wait.
func (c *ServerTLSConfig) admit(ctx context.Context, certs []*x509.Certificate) (*runner, *Refusal) {
	r, refusal := c.judge(certs)
	if refusal != nil {
		return nil, refusal
	}
	if c.Current != nil {
		ctx, cancel := context.WithTimeout(ctx, currentWait)
		defer cancel()
		if err := c.Current(ctx); err != nil {
			return nil, refuse(certs[0], c.TrustDomain, RefusedNotCurrent,
				"the agent cannot let Runners in before the control plane has told it who is revoked: %v", err)
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

// judge holds certificates against what is known now.
func (c *ServerTLSConfig) judge(certs []*x509.Certificate) (*runner, *Refusal) {
	leaf := certs[0]
	chains, err := c.verify(certs)
	if invalid := (x509.CertificateInvalidError{}); errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return nil, refuse(leaf, c.TrustDomain, RefusedExpired, "the certificate is valid from %s to %s; the agent's clock says %s",
			leaf.NotBefore.UTC().Format(time.RFC3339), leaf.NotAfter.UTC().Format(time.RFC3339), c.now().UTC().Format(time.RFC3339))
	}
	if err != nil {
		return nil, refuse(leaf, "", RefusedUnknown, "the certificate is not one that the agent trusts: %v", err)
	}
	name, err := nameFrom(leaf, c.TrustDomain, roleRunner)
	if err != nil {
		return nil, refuse(leaf, "", RefusedUnknown, "%v", err)
	}
	grant, err := GrantOf(leaf)
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

// expiry is when the first chain ends: with the certificate that ends first.
func expiry(chains [][]*x509.Certificate) time.Time {
	until := chains[0][0].NotAfter
	for _, cert := range chains[0] {
		if cert.NotAfter.Before(until) {
			until = cert.NotAfter
		}
	}
	return until
}

// refuse makes a refusal. An empty trust domain is for certificates that prove
// nothing.
func refuse(cert *x509.Certificate, trustDomain string, code Code, format string, args ...any) *Refusal {
	r := &Refusal{Code: code, Message: shorten(fmt.Sprintf(format, args...), maxRefusal), Certificate: cert.SerialNumber.Text(16)}
	if trustDomain != "" {
		r.Runner, _ = nameFrom(cert, trustDomain, roleRunner)
	}
	return r
}
