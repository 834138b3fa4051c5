package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
)

// HasCA says whether the CA with this fingerprint is one of the identity's.
func (id *Identity) HasCA(fingerprint string) bool {
	for rest := []byte(id.CABundle); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return false
		}
		if ca, err := x509.ParseCertificate(block.Bytes); err == nil && controlapi.Fingerprint(ca) == fingerprint {
			return true
		}
	}
}

// TLS is the agent's side of mutual TLS with the control plane and its frps,
// which present certificates of the control plane's own CA.
func (id *Identity) TLS() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: id.Roots,
		Certificates: []tls.Certificate{id.Certificate},
	}
}

// ControlPlaneTLS is TLS for the HTTPS API, whose certificate may be a public
// CA's or, with extra, one of a CA that the operator named.
func (id *Identity) ControlPlaneTLS(extra *x509.CertPool) *tls.Config {
	cfg := id.TLS()
	switch {
	case extra != nil:
		cfg.RootCAs = extra.Clone()
		cfg.RootCAs.AppendCertsFromPEM([]byte(id.CABundle))
	case id.SystemRoots:
		if system, err := x509.SystemCertPool(); err == nil {
			system.AppendCertsFromPEM([]byte(id.CABundle))
			cfg.RootCAs = system
		}
	}
	return cfg
}
