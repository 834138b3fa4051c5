package client

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// TLSConfig is what a Runner needs to reach one agent.
type TLSConfig struct {
	// Certificate returns the Runner's certificate. It is called at each handshake.
	Certificate func() (*tls.Certificate, error)
	// Roots is the control plane's CA.
	Roots *x509.CertPool
	// TrustDomain is that of the agent's SPIFFE ID.
	TrustDomain string
	// AgentID is the agent that must answer. If empty, any agent with a certificate for ServerName
	// may.
	AgentID string
	// ServerName is AGENT_ID.AGENTS_DOMAIN.
	ServerName string
}

// TLS returns a configuration for mutual TLS 1.3 with one agent: its certificate must be for
// ServerName, and be an agent's certificate of the trust domain that the agents' intermediate CA
// has signed.
func TLS(c TLSConfig) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: wire.ALPN,
		ServerName: c.ServerName,
		RootCAs:    c.Roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return c.Certificate()
		},
		VerifyConnection: func(state tls.ConnectionState) error {
			id, err := credentials.CertificateName(state.PeerCertificates[0], c.TrustDomain, trustanchor.RoleAgent)
			if err == nil {
				err = trustanchor.SignedFor(state.VerifiedChains, c.TrustDomain, trustanchor.RoleAgent)
			}
			if err == nil && c.AgentID != "" && id != c.AgentID {
				err = fmt.Errorf("agent %s answered in place of %s", printable.Clip(id), c.AgentID)
			}
			if err != nil {
				return &identityError{err}
			}
			return nil
		},
	}
}

// identityError means that a certificate is valid but belongs to another identity.
type identityError struct{ reason error }

func (e *identityError) Error() string { return e.reason.Error() }

func (e *identityError) Unwrap() error { return e.reason }
