// Package selfsigned creates certificates for servers of tests. Each one is its own authority.
package selfsigned

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// life is long enough for servers that outlive a test.
const life = 10 * 365 * 24 * time.Hour

// Key returns a new key.
func Key(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	return key
}

// PEM returns a certificate for these names and IP addresses, and its key.
func PEM(names ...string) (cert, key string, err error) {
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test server"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pair.Public(), pair)
	secret, failed := x509.MarshalPKCS8PrivateKey(pair)
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", secret), errors.Join(err, failed)
}

// Write writes what PEM returns into a folder, for a server: server.crt, which is ca.crt too, and
// server.key.
func Write(dir string, names ...string) error {
	cert, key, err := PEM(names...)
	for name, text := range map[string]string{"ca.crt": cert, "server.crt": cert, "server.key": key} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return err
}

// Pair returns what PEM does, for a server, and the pool that trusts it.
func Pair(names ...string) (tls.Certificate, *x509.CertPool, error) {
	cert, key, err := PEM(names...)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(cert))
	return pair, pool, err
}
