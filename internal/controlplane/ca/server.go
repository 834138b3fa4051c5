package ca

import (
	"crypto/tls"
	"slices"
	"sync"
	"time"
)

// serverTTL is the life of the control plane's own certificate. It is made anew
// at each start, at two thirds of its life, and when the CA is rotated.
const serverTTL = 90 * 24 * time.Hour

// ServerCertificate is the control plane's own certificate, made when it is asked
// for and again before it ends, so that nothing has to be restarted.
type ServerCertificate struct {
	ca    *CA
	names []string

	mu      sync.Mutex
	current *tls.Certificate
	by      *state // what issued it
	renewAt time.Time
}

// NewServerCertificate makes one for those DNS names and IP addresses.
func NewServerCertificate(c *CA, names []string) *ServerCertificate {
	names = slices.Clone(names)
	slices.Sort(names)
	return &ServerCertificate{ca: c, names: slices.Compact(names)}
}

// Get is for tls.Config.GetCertificate.
func (s *ServerCertificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, by := s.ca.now(), s.ca.state.Load()
	if s.current != nil && s.by == by && now.Before(s.renewAt) {
		return s.current, nil
	}
	cert, err := s.ca.Server(s.names, serverTTL)
	if err != nil {
		return nil, err
	}
	s.current, s.by, s.renewAt = cert, by, now.Add(serverTTL*2/3)
	return cert, nil
}
