package ca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"net/url"
	"time"
)

// ControlPlane issues the certificate with which the control plane itself is a
// client of agents.
func (c Issuer) ControlPlane(id *url.URL, ttl time.Duration) (*tls.Certificate, error) {
	return c.own(&x509.Certificate{URIs: []*url.URL{id}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, ttl, reasonRefresh)
}

// Peer issues the certificate with which one of several control planes connects to the others, as
// client and as server of that name.
func (c Issuer) Peer(id *url.URL, serverName string, ttl time.Duration) (*tls.Certificate, error) {
	return c.own(&x509.Certificate{
		URIs: []*url.URL{id}, DNSNames: []string{serverName},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}, ttl, reasonPeers)
}

func (c Issuer) own(template *x509.Certificate, ttl time.Duration, reason string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	s := c.state.Load()
	leaf, signer, err := c.sign(s, key.Public(), template, c.now().Add(-time.Hour), ttl, reason)
	if err != nil {
		return nil, err
	}
	cert := &tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key, Leaf: leaf}
	for _, above := range s.chain(signer) { // for agents that know only an earlier CA
		cert.Certificate = append(cert.Certificate, above.Raw)
	}
	return cert, nil
}
