package controlapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// Trust defines how an agent recognizes the control plane. Exactly one of the two is used; without
// either, the system's roots are used.
type Trust struct {
	// Fingerprint is that of the CA, from the enrolment token.
	Fingerprint string
	// Roots are CAs from a file, or those of the identity.
	Roots *x509.CertPool
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// fingerprintError means that none of the presented certificates is the CA that the token names.
type fingerprintError struct{ want, got string }

func (e *fingerprintError) Error() string {
	return fmt.Sprintf("the certificate's CA has the fingerprint %s, the token names %s", e.got, e.want)
}

// TLSConfig returns the configuration for the first connection to the control plane at rawURL, when
// there is no identity yet.
func (t Trust) TLSConfig(rawURL string) (*tls.Config, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: u.Hostname(), RootCAs: t.Roots, Time: t.Now}
	if t.Fingerprint == "" {
		return cfg, nil
	}
	// The roots are unknown until the server has shown its chain, so that
	// crypto/tls cannot verify it: verifyPinned does, completely.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		return t.verifyPinned(u.Hostname(), cs.PeerCertificates)
	}
	return cfg, nil
}

// verifyPinned verifies the chain as crypto/tls would, with the CA that has the fingerprint as the
// only root. That may be a former one, to which the current CA's chain leads back.
func (t Trust) verifyPinned(host string, chain []*x509.Certificate) error {
	if len(chain) == 0 {
		return errors.New("the server presented no certificate")
	}
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	found := false
	for _, c := range chain[1:] {
		if c.IsCA && Fingerprint(c) == t.Fingerprint {
			roots.AddCert(trustanchor.Of(c))
			found = true
		} else {
			intermediates.AddCert(c)
		}
	}
	if !found {
		return &fingerprintError{want: t.Fingerprint, got: Fingerprint(chain[len(chain)-1])}
	}
	opts := x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates}
	if t.Now != nil {
		opts.CurrentTime = t.Now()
	}
	if _, err := chain[0].Verify(opts); err != nil {
		return &tls.CertificateVerificationError{UnverifiedCertificates: chain, Err: err}
	}
	return nil
}

// ParseURL parses the control plane's URL; its error explains what is wrong.
func ParseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	switch {
	case raw == "":
		return nil, errors.New("the control plane's URL is empty; set PIPEOPS_CONTROL_PLANE_URL, for example to https://control.example.com:8443")
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, errors.New("the control plane's URL is not a URL; it looks like https://control.example.com:8443")
	case u.User != nil:
		return nil, errors.New("the control plane's URL holds a user name or password; take it out, the token is sent another way")
	case u.Scheme != "https":
		return nil, fmt.Errorf("the control plane's URL must begin with https://, not %q", u.Scheme+"://")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the control plane's URL has a query or fragment; leave it out")
	}
	return u, nil
}
