package ca

import (
	"crypto/tls"
	"net/url"
	"slices"
	"sync"
	"time"
)

// serverTTL is the life of the control plane's own certificate. It is made anew
// at each start, at two thirds of its life, and when the CA is rotated.
const serverTTL = 90 * 24 * time.Hour

// nodeTTL is the life of the certificate for other control planes.
const nodeTTL = time.Hour

// ServerCertificate is the control plane's own certificate, made when it is asked
// for and again before it ends, so that nothing has to be restarted.
type ServerCertificate struct {
	ca   *CA
	make func() (*tls.Certificate, error)
	ttl  time.Duration

	mu      sync.Mutex
	current *tls.Certificate
	by      *state // what issued it
	renewAt time.Time
}

// NewServerCertificate makes one for those DNS names and IP addresses.
func NewServerCertificate(c *CA, names []string) *ServerCertificate {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	return &ServerCertificate{ca: c, ttl: serverTTL, make: func() (*tls.Certificate, error) { return c.Server(names, serverTTL) }}
}

// NewNodeCertificate makes one that is for other control planes: see CA.Node.
func NewNodeCertificate(c *CA, id *url.URL, serverName string) *ServerCertificate {
	return &ServerCertificate{ca: c, ttl: nodeTTL, make: func() (*tls.Certificate, error) { return c.Node(id, serverName, nodeTTL) }}
}

// Get is for tls.Config.GetCertificate.
func (s *ServerCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, by := s.ca.now(), s.ca.state.Load()
	if s.current != nil && s.by == by && now.Before(s.renewAt) {
		return s.current, nil
	}
	cert, err := s.make()
	if err != nil {
		return nil, err
	}
	s.current, s.by, s.renewAt = cert, by, now.Add(s.ttl*2/3)
	return cert, nil
}
