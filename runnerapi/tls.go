package runnerapi

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

// alpn are the protocols of this wire, the preferred one first.
var alpn = []string{"h2", "http/1.1"}

// ServerTLSConfig is what the agent needs to end the Runner's TLS. Both
// functions are asked at each handshake, so certificates rotate without a new
// listener.
type ServerTLSConfig struct {
	Certificate func() (*tls.Certificate, error)
	Roots       func() *x509.CertPool
	TrustDomain string
	// Time is the clock that certificates are checked by; the machine's when nil.
	Time func() time.Time
	// Revoked says whether a Runner's certificate, named by its serial number in
	// hexadecimal, is to be refused though it has not expired. Nil refuses none.
	Revoked func(serial string) bool
}

// ServerTLS is mutual TLS 1.3 that lets nobody in but Runners of this trust
// domain: anything else ends in the handshake, before a request is read.
func ServerTLS(c ServerTLSConfig) *tls.Config {
	// Sessions are not resumed: each connection proves itself against the roots
	// of now, and Runners keep their connections anyway.
	base := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: alpn, SessionTicketsDisabled: true}
	base.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cert, err := c.Certificate()
		if err != nil {
			return nil, fmt.Errorf("runner API: certificate: %w", err)
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, NextProtos: alpn, SessionTicketsDisabled: true,
			Certificates: []tls.Certificate{*cert},
			ClientAuth:   tls.RequireAndVerifyClientCert,
			ClientCAs:    c.Roots(),
			Time:         c.Time,
			VerifyConnection: func(state tls.ConnectionState) error {
				return c.admit(&state)
			},
		}, nil
	}
	return base
}

// admit decides at the end of a handshake.
func (c ServerTLSConfig) admit(state *tls.ConnectionState) error {
	name, err := CallerFromTLS(state, c.TrustDomain)
	if err != nil {
		return err
	}
	if c.Revoked != nil && c.Revoked(state.VerifiedChains[0][0].SerialNumber.Text(16)) {
		return fmt.Errorf("the certificate of Runner %s was revoked", name)
	}
	return nil
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
