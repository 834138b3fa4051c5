package ca

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"slices"
	"sync"
	"time"
)

// serverTTL is the life of the control plane's own certificate. It is made again at each start, at
// two thirds of its life, and when the CA is rotated.
const serverTTL = 90 * 24 * time.Hour

// makeAgain is how long a certificate that could not be replaced is used before the next attempt.
const makeAgain = time.Minute

// peerTTL is the life of the certificate for other control planes.
const peerTTL = time.Hour

// ServerCertificate is the control plane's own certificate. It is created on demand, and again
// before it expires, so that no restart is needed.
type ServerCertificate struct {
	ca   *CA
	make func() (*tls.Certificate, error)
	ttl  time.Duration

	mu      sync.Mutex
	current *tls.Certificate
	short   *tls.Certificate // for clients that hold a CA
	by      *state           // what issued it
	renewAt time.Time
}

// NewServerCertificate returns a certificate for those DNS names and IP addresses.
func NewServerCertificate(c *CA, names []string) *ServerCertificate {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	return &ServerCertificate{ca: c, ttl: serverTTL, make: func() (*tls.Certificate, error) { return c.Server(names, serverTTL) }}
}

// NewPeerCertificate returns a certificate for connections of other control planes: see CA.Peer.
func NewPeerCertificate(c *CA, id *url.URL, serverName string) *ServerCertificate {
	return &ServerCertificate{ca: c, ttl: peerTTL, make: func() (*tls.Certificate, error) { return c.Peer(id, serverName, peerTTL) }}
}

// Get implements tls.Config.GetCertificate.
func (s *ServerCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.renew()
	return s.current, err
}

// GetShort is like Get for clients that hold a CA's certificate, and not only its fingerprint. It
// leaves out self-signed certificates: with them, crypto/x509 tries the received CA after the one
// that the client holds, and so verifies one signature more.
func (s *ServerCertificate) GetShort(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.renew()
	return s.short, err
}

// renew makes the certificate if there is none, or another is due. If that fails, for example since
// the log of certificates cannot be written, a certificate that is still valid stays in use.
func (s *ServerCertificate) renew() error {
	now, by := s.ca.now(), s.ca.state.Load()
	if s.current != nil && s.by == by && now.Before(s.renewAt) {
		return nil
	}
	err := s.replace(now, by)
	if err != nil && s.current != nil && now.Before(s.current.Leaf.NotAfter) {
		s.by, s.renewAt = by, now.Add(makeAgain)
		return nil
	}
	return err
}

func (s *ServerCertificate) replace(now time.Time, by *state) error {
	cert, err := s.make()
	if err != nil {
		return err
	}
	short, err := withoutAnchors(cert)
	if err != nil {
		return err
	}
	life := min(s.ttl, cert.Leaf.NotAfter.Sub(now)) // its CA may end before it
	s.current, s.short, s.by, s.renewAt = cert, short, by, now.Add(life*2/3)
	return nil
}

// withoutAnchors returns a certificate with only what leads to a CA's, and none that signs itself.
func withoutAnchors(cert *tls.Certificate) (*tls.Certificate, error) {
	short := *cert
	short.Certificate = cert.Certificate[:1:1]
	for _, raw := range cert.Certificate[1:] {
		above, err := x509.ParseCertificate(raw)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(above.RawIssuer, above.RawSubject) {
			short.Certificate = append(short.Certificate, raw)
		}
	}
	return &short, nil
}
