package attackers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// own is the certificate of the hostile servers with TLS, which signed itself.
var own struct {
	sync.Once
	cert tls.Certificate
	pem  string
	err  error
}

func certificate(t *testing.T, ip string) tls.Certificate {
	t.Helper()
	own.Do(func() { own.cert, own.pem, own.err = selfSigned(net.ParseIP(ip)) })
	require.NoError(t, own.err)
	return own.cert
}

// certificateAuthority returns what verifies it, in PEM.
func certificateAuthority(t *testing.T) string {
	t.Helper()
	certificate(t, sys.HostIP())
	return own.pem
}

func selfSigned(ip net.IP) (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{ip}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})), nil
}
