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
	return trustanchor.Pinned(u.Hostname(), t.Fingerprint, t.Now), nil
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
