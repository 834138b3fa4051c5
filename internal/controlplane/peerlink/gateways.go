package peerlink

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/url"
	"sync"
	"time"
)

// gatewayALPN is the protocol of gateways: as alpn, but for public traffic alone.
const gatewayALPN = "pipeops-gateway/1"

const (
	gatewayLeafLife  = 24 * time.Hour
	gatewayLeafRenew = 12 * time.Hour
	gatewayBackdate  = time.Hour // for clocks that are behind
)

// Gateways are the certificates of the link between gateways and control planes. Both ends make
// their own, signed with a key that they share. The key proves nothing else.
type Gateways struct {
	trustDomain string
	key         ed25519.PrivateKey
	root        *x509.Certificate
	now         func() time.Time

	mu   sync.Mutex
	leaf *tls.Certificate
	made time.Time
}

// NewGateways returns the certificates for the seed of the key, of 32 bytes.
func NewGateways(seed []byte, trustDomain string, now func() time.Time) (*Gateways, error) {
	key := ed25519.NewKeyFromSeed(seed)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "gateways of " + trustDomain},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), // as long as the key is shared
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	root, err := x509.ParseCertificate(der)
	return &Gateways{trustDomain: trustDomain, key: key, root: root, now: now}, err
}

// ForGateway returns the configuration of a gateway.
func (g *Gateways) ForGateway() (*tls.Config, error) {
	return g.config(&url.URL{Scheme: "spiffe", Host: g.trustDomain, Path: "/gateway"}, "")
}

// ForPeer returns the configuration of a control plane.
func (g *Gateways) ForPeer(peer string) (*tls.Config, error) {
	return g.config(URI(g.trustDomain, peer), ServerName(g.trustDomain, peer))
}

// config is called for one identity alone.
func (g *Gateways) config(id *url.URL, name string) (*tls.Config, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if g.leaf == nil || now.Sub(g.made) >= gatewayLeafRenew {
		leaf, err := g.sign(id, name, now)
		if err != nil {
			return nil, err
		}
		g.leaf, g.made = leaf, now
	}
	pool := x509.NewCertPool()
	pool.AddCert(g.root)
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{gatewayALPN}, Certificates: []tls.Certificate{*g.leaf},
		RootCAs: pool, ClientCAs: pool, Time: g.now,
	}, nil
}

func (g *Gateways) sign(id *url.URL, name string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		NotBefore: now.Add(-gatewayBackdate), NotAfter: now.Add(gatewayLeafLife), URIs: []*url.URL{id}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if name != "" {
		template.DNSNames, template.ExtKeyUsage = []string{name}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, g.root, key.Public(), g.key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

var errPublicOnly = errors.New("a gateway asks for a connection of a Runner")
