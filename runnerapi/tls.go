package runnerapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"
)

// alpn are the protocols of this wire, the preferred one first.
var alpn = []string{alpnHTTP2, alpnHTTP1}

const (
	alpnHTTP2 = "h2"
	alpnHTTP1 = "http/1.1" // for WebSockets, which HTTP/2 has only in theory (RFC 8441)
)

// ServerTLSConfig is what the agent needs to end the Runner's TLS. The functions
// are asked at each handshake, so certificates rotate without a new listener.
type ServerTLSConfig struct {
	Certificate func() (*tls.Certificate, error)
	Roots       func() *x509.CertPool
	TrustDomain string
	// Time is the clock that certificates are checked by; the machine's when nil.
	Time func() time.Time
	// Revoked says whether a Runner's certificate, named by its serial number in
	// hexadecimal, is to be refused though it has not expired. Nil refuses none.
	Revoked func(serial string) bool
	// Trusts returns why the customer does not trust a Runner, whose certificates these are, its own
	// first, although the control plane's CA does; nil where he does. Nil trusts all.
	Trusts func(runner string, certs []*x509.Certificate) error
	// Labels are the agent's, which a Runner's grant is held against. Nil is none.
	Labels func() map[string]string
	// Current waits until Revoked and Labels are what the control plane says now,
	// and answers an error when that takes too long. Nil for always.
	Current func(context.Context) error
	// Refused hears of each Runner that is not let in, or is let out. It must not
	// block. Nil for nobody.
	Refused func(Refusal)
	// Nudge is called when the control plane wants the agent to ask for its news,
	// and answers when that has been done. Nil where nobody is to be nudged.
	Nudge func(context.Context) error
}

// ServerTLS is mutual TLS 1.3 that lets nobody in but Runners of this trust
// domain whose grant is for this agent: anything else ends in the handshake,
// before a request is read.
func ServerTLS(c ServerTLSConfig) *tls.Config {
	// Sessions are not resumed: each connection proves itself against the roots
	// of now, and Runners keep their connections anyway.
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: alpn, SessionTicketsDisabled: true}
	base.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		cert, err := c.Certificate()
		if err != nil {
			return nil, fmt.Errorf("runner API: certificate: %w", err)
		}
		protocols, verify := alpn, c.runnerVerifier(hello)
		if c.Nudge != nil && slices.Contains(hello.SupportedProtos, nudgeProtocol) {
			protocols, verify = []string{nudgeProtocol}, c.nudgeVerifier(hello)
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: protocols, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{*cert},
			// crypto/tls can only verify what it understands all of, and a grant is
			// a critical extension: verify does what RequireAndVerifyClientCert would.
			ClientAuth: tls.RequireAnyClientCert, ClientCAs: c.Roots(), Time: c.Time,
			VerifyConnection: verify,
		}, nil
	}
	return base
}

func (c *ServerTLSConfig) now() time.Time {
	if c.Time == nil {
		return time.Now()
	}
	return c.Time()
}

// verify is a client certificate's chain to our CAs, as crypto/tls verifies it.
func (c *ServerTLSConfig) verify(certs []*x509.Certificate) ([][]*x509.Certificate, error) {
	opts := x509.VerifyOptions{
		Roots: c.Roots(), CurrentTime: c.now(), Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, cert := range certs[1:] {
		opts.Intermediates.AddCert(cert)
	}
	return Understood(certs[0]).Verify(opts)
}

// ClientTLSConfig is what a Runner needs to reach one agent.
type ClientTLSConfig struct {
	// Certificate is asked for the Runner's certificate at each handshake.
	Certificate func() (*tls.Certificate, error)
	// Roots is the control plane's CA.
	Roots *x509.CertPool
	// TrustDomain is that of the agent's SPIFFE ID.
	TrustDomain string
	// AgentID is who must answer; empty for whoever ServerName belongs to.
	AgentID string
	// ServerName is AGENT_ID.AGENTS_DOMAIN.
	ServerName string
}

// ClientTLS is mutual TLS 1.3 with the one agent that is meant: its
// certificate must be for ServerName and be an agent's of the trust domain.
func ClientTLS(c ClientTLSConfig) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: alpn,
		ServerName: c.ServerName,
		RootCAs:    c.Roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.Certificate()
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := nameFrom(state.PeerCertificates[0], c.TrustDomain, roleAgent)
			if err == nil && c.AgentID != "" && id != c.AgentID {
				err = fmt.Errorf("agent %s answered in place of %s", clip(id), c.AgentID)
			}
			if err != nil {
				return &identityError{err}
			}
			return nil
		},
	}
}

// identityError is that a certificate is sound but somebody else's.
type identityError struct{ reason error }

func (e *identityError) Error() string { return e.reason.Error() }
func (e *identityError) Unwrap() error { return e.reason }
