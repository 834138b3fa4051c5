// Package tunneltest provides certificates and simulated networks for the tunnel's tests only.
package tunneltest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// ServerName is the name in servers' certificates.
const ServerName = "tunnel.example.test"

// CA signs the certificates of one test.
type CA struct {
	t      testing.TB
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	serial atomic.Int64
}

// NewCA returns a CA that trusts and is trusted by nothing else.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{t: t, cert: cert, key: key}
}

// Pool holds this CA alone.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Server returns the configuration of a server that wants certificates of this CA.
func (ca *CA) Server() *tls.Config {
	return &tls.Config{
		Certificates: []tls.Certificate{ca.sign(&x509.Certificate{DNSNames: []string{ServerName}}, time.Hour)},
		ClientCAs:    ca.Pool(), MinVersion: tls.VersionTLS13,
	}
}

// Agent returns the configuration of the agent called id, with a new certificate.
func (ca *CA) Agent(id string) *tls.Config { return ca.AgentFor(id, time.Hour) }

// AgentFor is like Agent with a validity, which may be negative.
func (ca *CA) AgentFor(id string, validity time.Duration) *tls.Config {
	template := &x509.Certificate{
		DNSNames: []string{id + ".agents.example.test"},
		URIs:     []*url.URL{{Scheme: "spiffe", Host: "example.test", Path: "/agent/" + id}},
	}
	return &tls.Config{
		Certificates: []tls.Certificate{ca.sign(template, validity)},
		RootCAs:      ca.Pool(), ServerName: ServerName, MinVersion: tls.VersionTLS13,
	}
}

// Identify reads the ID that Agent wrote.
func Identify(state tls.ConnectionState) (string, error) {
	for _, uri := range state.PeerCertificates[0].URIs {
		if id, ok := strings.CutPrefix(uri.Path, "/agent/"); ok {
			return id, nil
		}
	}
	return "", errors.New("no agent's certificate")
}

func (ca *CA) sign(template *x509.Certificate, validity time.Duration) tls.Certificate {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(ca.serial.Add(1) + 1)
	template.NotBefore, template.NotAfter = time.Now().Add(-30*time.Minute), time.Now().Add(validity)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	if err != nil {
		ca.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Certificate returns the CA's own certificate in DER.
func (ca *CA) Certificate() []byte { return ca.cert.Raw }
