package identity

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// HasCA reports whether the CA with this fingerprint is one of the identity's, or was one before: a
// token keeps the fingerprint that it was made with.
func (id *Identity) HasCA(fingerprint string) bool {
	return slices.ContainsFunc(trustanchor.Parse([]byte(id.CABundle+id.FormerCAs)), func(ca *x509.Certificate) bool {
		return controlapi.Fingerprint(ca) == fingerprint
	})
}

// With returns the identity with other CAs, which the control plane sent.
func (id *Identity) With(cas controlapi.CAs) (*Identity, error) {
	answer := id.Identity
	answer.CABundle, answer.FormerCAs = cas.Bundle, cas.Former
	return New(id.key, answer, id.Registration)
}

// Leaf returns the certificate alone, in PEM.
func (id *Identity) Leaf() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: id.Certificate.Leaf.Raw}))
}

// TLS returns the agent's side of mutual TLS with the control plane and its frps, which present
// certificates of the control plane's own CA. The agent sends its certificate without the CAs above
// it, which the control plane has: it would otherwise verify one more signature for each. Runners
// may need the CAs; they receive Certificate.
func (id *Identity) TLS() *tls.Config {
	own := id.Certificate
	own.Certificate = own.Certificate[:1:1]
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: id.Roots,
		Certificates: []tls.Certificate{own},
	}
}

// ControlPlaneTLS is like TLS for the HTTPS API, whose certificate may be a public CA's or, with
// extra, one of a CA that the operator named.
func (id *Identity) ControlPlaneTLS(extra *x509.CertPool) *tls.Config {
	cfg := id.TLS()
	switch {
	case extra != nil:
		cfg.RootCAs = extra.Clone()
		trustanchor.Append(cfg.RootCAs, []byte(id.CABundle))
	case id.SystemRoots:
		if system, err := x509.SystemCertPool(); err == nil {
			trustanchor.Append(system, []byte(id.CABundle))
			cfg.RootCAs = system
		}
	}
	return cfg
}
